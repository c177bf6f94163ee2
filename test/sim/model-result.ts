import { type Commit, type Ending, type Found, type Item, isRequired, type Shift } from "./commit.js";
import type { Model } from "./model.js";

/** What an ack, if it takes effect, leaves of a task. */
interface Brought {
  readonly commit: Commit;
  readonly value: number;
  /** It is kept for so long, from no earlier than then. */
  readonly ttlMs: number;
  sinceMs: number;
  /** A power cut may have taken it back, or another call was first. */
  unsure: boolean;
}

/** How far a task was said to have got, by who held it under a token. */
interface Progress {
  readonly commit: Commit;
  readonly token: string;
  readonly value: number;
  /** A power cut may have taken it back. */
  unsure: boolean;
}

/** When somebody asked, and what time it was when the answer came. */
export interface Asked {
  readonly askedNumber: number;
  readonly nowMs: number;
}

/** What tasks brought, and how far they were said to be. */
export class ResultModel {
  private readonly model: Model;
  private readonly brought = new Map<Item, Brought[]>();
  private readonly said = new Map<Item, Progress[]>();

  constructor(model: Model) {
    this.model = model;
  }

  /** An ack is called. */
  bringing(item: Item, commit: Commit, value: number, ttlMs: number): void {
    const all = this.brought.get(item) ?? [];
    all.push({ commit, value, ttlMs, sinceMs: commit.madeMs, unsure: false });
    this.brought.set(item, all);
  }

  /** Who asked at a moment was told what a task brought. */
  told(item: Item, value: unknown, { askedNumber, nowMs }: Asked): void {
    const all = this.brought.get(item) ?? [];
    const what = `${item.queue}: message ${item.number}`;
    if (value !== undefined && !all.some((each) => each.value === value && each.commit.possible)) {
      this.model.violate(`${what} is said to have brought ${value}, which nobody said of it`);
    }
    const kept = all.find((each) => this.isKept(each, askedNumber, nowMs));
    if (kept !== undefined && value !== kept.value) {
      this.model.violate(`${what} has brought ${kept.value}, and is said to have brought ${value}`);
    }
  }

  /** Who asked was told that it is not done. */
  toldUndone(item: Item, code: string, { askedNumber, nowMs }: Asked): void {
    const kept = this.brought.get(item)?.find((each) => this.isKept(each, askedNumber, nowMs));
    if (kept !== undefined) {
      this.model.violate(`${item.queue}: message ${item.number} has brought ${kept.value}; asked for it, ${code} came`);
    }
  }

  private isKept({ commit, unsure, sinceMs, ttlMs }: Brought, askedNumber: number, nowMs: number): boolean {
    return commit.acked && !unsure && commit.answeredNumber < askedNumber && nowMs < sinceMs + ttlMs;
  }

  saying(item: Item, progress: Omit<Progress, "unsure">): void {
    const all = this.said.get(item) ?? [];
    all.push({ ...progress, unsure: false });
    this.said.set(item, all);
  }

  /** Who asked was told how far a task is. @param token under which it is held for sure, if it is */
  toldProgress(item: Item, value: unknown, token: string | undefined, { askedNumber }: Asked): void {
    const all = this.said.get(item) ?? [];
    const what = `${item.queue}: message ${item.number}`;
    if (value !== undefined && !all.some((each) => each.value === value && each.commit.possible)) {
      this.model.violate(`${what} is said to be at ${value}, which nobody said of it`);
    }
    const last = all.at(-1);
    if (last === undefined || last.unsure || last.token !== token) return;
    if (!last.commit.acked || last.commit.answeredNumber > askedNumber) return;
    if (value !== last.value) this.model.violate(`${what} is at ${last.value}, and said to be at ${value}`);
  }

  /** What is still there has not been done, whoever said so. */
  recovered(ending: Ending, found: Found): void {
    for (const [item, all] of this.brought) {
      if (found.items.has(item)) this.brought.delete(item);
      else for (const each of all) each.unsure ||= !isRequired(each.commit, ending);
    }
    for (const all of this.said.values()) for (const each of all) each.unsure ||= !isRequired(each.commit, ending);
  }

  restarted({ nowMs, lastMs }: Shift): void {
    for (const all of this.brought.values()) for (const each of all) each.sinceMs += nowMs - lastMs;
  }
}
