import { ENDS, type Item } from "./commit.js";
import type { Model } from "./model.js";

/** Flows as those who enqueued them know them: which tasks wait for which others. */
export class FlowModel {
  private readonly model: Model;
  private readonly children = new Map<Item, readonly Item[]>();

  constructor(model: Model) {
    this.model = model;
  }

  add(parent: Item, children: readonly Item[]): void {
    this.children.set(parent, children);
    // As far as others are concerned, it waits for its time.
    parent.delayed = true;
  }

  /** A task is handed out, and was not redriven. */
  judge(task: Item, what: string): void {
    for (const child of this.children.get(task) ?? []) {
      if (!this.mayBeDone(child)) {
        this.model.violate(`${what}: delivered before message ${child.number} of ${child.queue}, its child, was done`);
      }
    }
  }

  /** A task is a dead letter, and was never handed out. */
  died(task: Item, what: string): void {
    const children = this.children.get(task);
    if (children !== undefined && !children.some((child) => this.mayBeGone(child))) {
      this.model.violate(`${what}: is dead, and all its children may still be done`);
    }
  }

  private mayBeDone(child: Item): boolean {
    if (child.acks.some(({ label, possible }) => possible && !ENDS.has(label))) return true;
    return this.model.sources.get(child.queue)?.mayHaveTaken === true;
  }

  private mayBeGone(child: Item): boolean {
    if (child.deleted || this.model.isUncertain(child.queue)) return true;
    if (child.expiry !== undefined || this.model.sources.get(child.queue)?.dropsOldest === true) return true;
    return child.purges.some(({ possible }) => possible) || child.acks.some(({ label }) => ENDS.has(label));
  }
}
