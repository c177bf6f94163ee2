/** What an inspection found. */
export interface VerifyReport {
  /** True when there are no problems. */
  readonly ok: boolean;
  /** Files checked, and their bytes. */
  readonly files: number;
  readonly bytes: number;
  /** Records found intact, in segments and in the log. */
  readonly records: number;
  /** What is worth knowing but no damage: a torn tail, files that nothing refers to, foreign files. */
  readonly notes: readonly string[];
  readonly problems: readonly VerifyProblem[];
}

/** One place that is damaged. */
export interface VerifyProblem {
  readonly file: string;
  /** Byte in the file; undefined when it concerns the file as a whole. */
  readonly position: number | undefined;
  /** The queue that it costs something, such as `log/events`. */
  readonly queue: string | undefined;
  /** First and last offset of the records lost; undefined when none is, or when it cannot be told which. */
  readonly offsets: readonly [number, number] | undefined;
  readonly reason: string;
}

export interface VerifyProgress {
  readonly file: string;
  readonly bytesDone: number;
  readonly bytesTotal: number;
}

/** Problems reported one by one, at most: past it they are only counted. A file of another kind would have millions. */
const PROBLEMS_MAX = 10_000;
const NOTES_MAX = 1000;

/** Collects the report, and tells of progress. */
export class Findings {
  records = 0;
  readonly #problems: VerifyProblem[] = [];
  readonly #notes: string[] = [];
  readonly #onProgress: ((progress: VerifyProgress) => void) | undefined;
  #omittedProblems = 0;
  #omittedNotes = 0;
  #files = 0;
  #bytes = 0;
  #bytesDone = 0;
  #file = "";
  #started = false;

  constructor(onProgress?: (progress: VerifyProgress) => void) {
    this.#onProgress = onProgress;
  }

  problem(
    file: string,
    position: number | undefined,
    reason: string,
    queue?: string,
    offsets?: readonly [number, number],
  ): void {
    if (this.#problems.length < PROBLEMS_MAX) this.#problems.push({ file, position, queue, offsets, reason });
    else this.#omittedProblems++;
  }

  /** How many there are so far. */
  get problems(): number {
    return this.#problems.length + this.#omittedProblems;
  }

  note(text: string): void {
    if (this.#notes.length < NOTES_MAX) this.#notes.push(text);
    else this.#omittedNotes++;
  }

  /** A file that is going to be checked. */
  expect(bytes: number): void {
    this.#files++;
    this.#bytes += bytes;
  }

  /** No more files will be: from now on progress can be told. */
  start(): void {
    this.#started = true;
  }

  begin(file: string): void {
    this.#file = file;
  }

  /** Bytes of the current file have been read. */
  progress(bytes: number): void {
    this.#bytesDone = Math.min(this.#bytes, this.#bytesDone + bytes);
    if (this.#started) this.#onProgress?.({ file: this.#file, bytesDone: this.#bytesDone, bytesTotal: this.#bytes });
  }

  report(): VerifyReport {
    const notes = [...this.#notes];
    if (this.#omittedNotes > 0) notes.push(`${this.#omittedNotes} more notes were left out`);
    if (this.#omittedProblems > 0) notes.push(`${this.#omittedProblems} more problems were left out`);
    return {
      ok: this.#problems.length === 0,
      files: this.#files,
      bytes: this.#bytes,
      records: this.records,
      notes,
      problems: [...this.#problems],
    };
  }
}

/** Runs the check of one file: an error of the operating system is a finding, and does not keep others from being checked. */
export async function guarded(
  findings: Findings,
  file: string,
  check: () => Promise<void> | void,
  report: (reason: string) => void = (reason) => findings.problem(file, undefined, reason),
): Promise<void> {
  findings.begin(file);
  try {
    await check();
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    report(code === "ENOENT" ? "the file is missing" : `the file cannot be read: ${message}`);
  }
}
