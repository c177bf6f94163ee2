import type { Codec } from "../api/codec.js";
import type {
  AppendOptions,
  BatchesOptions,
  Bytes,
  CommitOptions,
  CompactionResult,
  GroupInfo,
  GroupMember,
  GroupOptions,
  Input,
  LogQueue,
  LogRecord,
  LogSettings,
  LogStats,
  SharedGroup,
  SharedGroupOptions,
  StoredLogSettings,
  TailOptions,
} from "../api/contract.js";
import { checkBatch, InputParser, type InputParts } from "../api/input.js";
import { checkGroupName } from "../api/names.js";
import {
  checkOffset,
  resolveAppendOptions,
  resolveBatchesOptions,
  resolveCommitOptions,
  resolveGroupOptions,
  resolveLogSettings,
  resolveSharedGroupOptions,
  resolveTailOptions,
  resolveTransactionAppendOptions,
} from "../api/options.js";
import type { Input as WireInput } from "../wire/input.js";
import { durabilityFlags, readOffsets, readRecords, writeMessage, writeMessages } from "../wire/layouts.js";
import { Methods } from "../wire/methods.js";
import { foreign, Handle } from "./handle.js";
import type { Link } from "./link.js";
import { DialledMember } from "./member.js";
import { decodeRecord } from "./records.js";
import { DialledSharedGroup } from "./shared-group.js";
import { flattened, RecordStream } from "./stream.js";
import type { ClientPlatform } from "./work.js";

/** Of a tail: bytes of payload that are read at once. */
const TAIL_BYTES = 64 * 1024;

/** A log queue of a daemon. */
export class DialledLog<I = Bytes, O = Buffer> implements LogQueue<I, O> {
  readonly kind = "log";
  readonly name: string;
  readonly #link: Link;
  readonly #platform: ClientPlatform;
  readonly #handle: Handle;
  readonly #codec: Codec<I, O>;
  readonly #parser: InputParser<I>;

  constructor(link: Link, platform: ClientPlatform, handle: Handle, name: string, codec: Codec<I, O>) {
    this.name = name;
    this.#link = link;
    this.#platform = platform;
    this.#handle = handle;
    this.#codec = codec;
    this.#parser = new InputParser(codec);
  }

  append(input: Input<I>, options?: AppendOptions): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#check();
      const { durability, request, key, headers } = resolveAppendOptions(options);
      const parts: InputParts = { payload: "", key, headers };
      this.#parser.parse(input, parts);
      const output = this.#link.begin(Methods.append, this.#handle.id, 0, request);
      output.u8(durabilityFlags(durability));
      writeMessage(output, parts);
      this.#link.send(Methods.append, this.#handle.id, resolve, reject, readOffset);
    });
  }

  appendBatch(inputs: readonly Input<I>[], options?: CommitOptions): Promise<number[]> {
    return new Promise((resolve, reject) => {
      this.#check();
      const { durability, request } = resolveCommitOptions(options);
      checkBatch(inputs);
      if (request?.each === true) {
        resolve(Promise.all(inputs.map((input, at) => this.append(input, { durability, request: request.at(at) }))));
        return;
      }
      const messages = inputs.map((input) => {
        const parts: InputParts = { payload: "", key: undefined, headers: undefined };
        this.#parser.parse(input, parts);
        return parts;
      });
      const output = this.#link.begin(Methods.appendBatch, this.#handle.id, 0, request);
      output.u8(durabilityFlags(durability));
      writeMessages(output, messages);
      this.#link.send(Methods.appendBatch, this.#handle.id, resolve, reject, readOffsets);
    });
  }

  read(offset: number): Promise<LogRecord<O> | undefined> {
    return new Promise((resolve, reject) => {
      checkOffset(offset);
      this.#check();
      const output = this.#link.begin(Methods.read, this.#handle.id);
      output.u64(offset);
      this.#link.send(Methods.read, this.#handle.id, resolve, reject, (input) => {
        const [record] = readRecords(input);
        return record && decodeRecord(this.name, this.#codec, record);
      });
    });
  }

  tail(options?: TailOptions): AsyncIterable<LogRecord<O>> {
    const { from, signal } = resolveTailOptions(options);
    this.#check();
    const stream = { from, signal, maxBytes: TAIL_BYTES, follow: true };
    return flattened(new RecordStream(this.#link, this.#handle, this.name, this.#codec, stream));
  }

  batches(options?: BatchesOptions): AsyncIterable<LogRecord<O>[]> {
    const resolved = resolveBatchesOptions(options);
    this.#check();
    return new RecordStream(this.#link, this.#handle, this.name, this.#codec, resolved);
  }

  async delete(key: string | Uint8Array, options?: Omit<AppendOptions, "key">): Promise<number> {
    resolveAppendOptions({ ...options, key });
    return await this.#call(Methods.delete, key, options);
  }

  compact(): Promise<CompactionResult> {
    return this.#call(Methods.compact);
  }

  async trim(offset: number, options?: CommitOptions): Promise<number> {
    resolveCommitOptions(options);
    checkOffset(offset);
    return await this.#call(Methods.trim, offset, options);
  }

  async purge(options?: CommitOptions): Promise<number> {
    resolveCommitOptions(options);
    return await this.#call(Methods.purgeLog, options);
  }

  async group(name: string, options?: GroupOptions): Promise<GroupMember<O>> {
    const { sessionMs } = resolveGroupOptions(options);
    this.#check();
    checkGroupName(name);
    const id = this.#link.newHandle();
    const again = { method: Methods.group, parent: this.#handle, args: [id, name, { sessionTimeout: sessionMs }] };
    await this.#call(Methods.group, id, name, options);
    return new DialledMember(this.#link, id, again, name, this.name, this.#codec);
  }

  async sharedGroup(name: string, options?: SharedGroupOptions): Promise<SharedGroup<O>> {
    const { leaseMs } = resolveSharedGroupOptions(options);
    this.#check();
    checkGroupName(name);
    const id = this.#link.newHandle();
    await this.#call(Methods.sharedGroup, id, name, options);
    const handle = new Handle(id, { method: Methods.sharedGroup, parent: this.#handle, args: [id, name] });
    return new DialledSharedGroup(this.#link, this.#platform, handle, name, this.name, this.#codec, leaseMs);
  }

  groups(): Promise<GroupInfo[]> {
    return this.#call(Methods.groups);
  }

  async deleteGroup(name: string, options?: CommitOptions): Promise<boolean> {
    resolveCommitOptions(options);
    this.#check();
    checkGroupName(name);
    return await this.#call(Methods.deleteGroup, name, options);
  }

  async configure(settings: LogSettings, options?: CommitOptions): Promise<void> {
    resolveLogSettings(settings);
    resolveCommitOptions(options);
    await this.#call(Methods.configureLog, settings, options);
  }

  settings(): Promise<StoredLogSettings> {
    return this.#call(Methods.logSettings);
  }

  stats(): Promise<LogStats> {
    return this.#call(Methods.logStats);
  }

  /** Its handle, for the parts of transactions. @throws VarveError `ERR_ARGUMENT`: it is of another client */
  handleFor(link: Link): number {
    if (link !== this.#link) throw foreign(this.name);
    return this.#handle.id;
  }

  /** An append as part of a transaction. @throws VarveError `ERR_ENCODE`, `ERR_OPTION` */
  partOf(input: Input<I>, options: Omit<AppendOptions, "durability"> | undefined): InputParts {
    const { key, headers } = resolveTransactionAppendOptions(options);
    const parts: InputParts = { payload: "", key, headers };
    this.#parser.parse(input, parts);
    return parts;
  }

  async #call<T>(method: (typeof Methods)[keyof typeof Methods], ...args: unknown[]): Promise<T> {
    this.#check();
    return await this.#link.call<T>(method, this.#handle.id, args);
  }

  #check(): void {
    this.#link.checkOpen();
    this.#handle.check();
  }
}

function readOffset(input: WireInput): number {
  return input.u64();
}
