import type { VerifyProblem } from "./inspect-report.js";

/** What a repair found and did, or would do. */
export interface RepairReport {
  /** True when nothing was damaged; then nothing was changed. */
  readonly sound: boolean;
  /** Only looked: nothing was changed. */
  readonly dryRun: boolean;
  /** The damage, as `verifyDirectory` reports it. */
  readonly problems: readonly VerifyProblem[];
  /** What is done about it, one step a line. */
  readonly actions: readonly string[];
  /** What cannot be had back. */
  readonly losses: readonly RepairLoss[];
  /** What else is worth knowing: offsets left out, tasks that will be delivered again. */
  readonly notes: readonly string[];
  /** The folder that holds whatever was removed or replaced; undefined when nothing was, or in a dry run. */
  readonly kept: string | undefined;
}

export interface RepairLoss {
  /** Such as `log/events`, or `task/jobs/dead` for dead letters; undefined when it cannot be told whose it was. */
  readonly queue: string | undefined;
  /** First and last offset of the records lost; undefined where it is not records, or not known which. */
  readonly offsets: readonly [number, number] | undefined;
  readonly reason: string;
}

const LOSSES_MAX = 10_000;
const LINES_MAX = 1000;

/** Collects the report. */
export class RepairFindings {
  readonly #actions: string[] = [];
  readonly #losses: RepairLoss[] = [];
  readonly #notes: string[] = [];
  #omitted = 0;

  action(text: string): void {
    this.#add(this.#actions, text, LINES_MAX);
  }

  note(text: string): void {
    if (!this.#notes.includes(text)) this.#add(this.#notes, text, LINES_MAX);
  }

  lost(queue: string | undefined, reason: string, offsets?: readonly [number, number]): void {
    this.#add(this.#losses, { queue, offsets, reason }, LOSSES_MAX);
  }

  report(dryRun: boolean, problems: readonly VerifyProblem[], kept: string | undefined): RepairReport {
    const notes = [...this.#notes];
    if (this.#omitted > 0) notes.push(`${this.#omitted} more lines were left out`);
    return { sound: false, dryRun, problems, actions: [...this.#actions], losses: [...this.#losses], notes, kept };
  }

  #add<T>(list: T[], line: T, max: number): void {
    if (list.length < max) list.push(line);
    else this.#omitted++;
  }
}
