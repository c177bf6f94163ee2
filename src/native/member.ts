import type { GroupMember, GroupReadOptions, LogQueue, LogRecord } from "../api/contract.js";

/** What a read may go on from when nothing has been given out. */
const NOTHING = 0;

/**
 * A member of an exclusive group, as a client reads with it over connections that may be lost: what was given out last, and did
 * not arrive, is given out again.
 */
export class ServedMember {
  readonly #member: GroupMember;
  readonly #log: LogQueue;
  /** Behind the last record that was given out, since it joined or was moved. */
  #given = NOTHING;
  #reading: Promise<unknown> = Promise.resolve();

  constructor(member: GroupMember, log: LogQueue) {
    this.#member = member;
    this.#log = log;
  }

  /** It reads on from there. */
  moved(offset: number): void {
    this.#given = offset;
  }

  /**
   * @param arrived the offset behind the last record that has arrived; 0: none has, since it joined or was moved
   * @throws VarveError as `GroupMember.read` does
   */
  read(arrived: number, options: GroupReadOptions & { readonly max: number }): Promise<LogRecord[]> {
    // What is read for a connection that is over counts as given out, and is known before the next one reads.
    const result = this.#reading.then(async () => {
      const again = arrived < this.#given ? await this.#again(arrived, options) : [];
      if (again.length > 0) return again;
      const records = await this.#member.read(options);
      const last = records.at(-1);
      if (last !== undefined) this.#given = last.offset + 1;
      return records;
    });
    this.#reading = result.catch(() => {});
    return result;
  }

  async #again(arrived: number, { max, maxBytes }: GroupReadOptions & { readonly max: number }): Promise<LogRecord[]> {
    const { active, committed } = await this.#member.position();
    // Whoever has its turn reads that.
    if (!active) return [];
    const from = arrived === NOTHING ? committed : arrived;
    for await (const batch of this.#log.batches({ from, maxBytes })) {
      return batch.filter(({ offset }) => offset < this.#given).slice(0, max);
    }
    return [];
  }
}
