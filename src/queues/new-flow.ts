import { VarveError } from "../api/errors.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import type { RecordParts } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Change } from "./commit.js";
import { FLOW_LINKS_MAX, type Flows } from "./flows.js";
import { totalBytesMax } from "./input.js";
import type { TaskPlace } from "./outcomes.js";
import { type DueTerms, SCHEDULE_BYTES_MAX } from "./scheduled.js";
import { taskId } from "./task-record.js";
import type { TaskState } from "./task-state.js";

/** A task of a flow on its way into its queue. */
export interface FlowTask {
  readonly state: TaskState;
  readonly parts: RecordParts;
  readonly priority: number;
  readonly due: DueTerms | undefined;
  /** Its children. */
  readonly children: readonly FlowTask[];
}

const LINK_BYTES_MAX = 2 * OPERATION_HEADER_BYTES + 32 + 12 * VARINT_BYTES_MAX;

/** The tasks of a flow, as one part of a commit. */
export class NewFlow implements Change {
  readonly bulkBytes: number;
  readonly records: number;
  readonly metaBytes: number;
  readonly settles = false;
  readonly #engine: Engine;
  readonly #tasks: readonly FlowTask[];
  readonly #offsets = new Map<FlowTask, number>();

  /** @param tasks all of them, children before their parents */
  constructor(engine: Engine, tasks: readonly FlowTask[]) {
    this.#engine = engine;
    this.#tasks = tasks;
    this.bulkBytes = totalBytesMax(tasks.map(({ parts }) => parts));
    this.records = tasks.length;
    this.metaBytes = tasks.length * (SCHEDULE_BYTES_MAX + LINK_BYTES_MAX);
  }

  /** Opens the lanes that the tasks go to. True when one of them is not durable yet. */
  openLanes(): boolean {
    let isNew = false;
    for (const { state, priority } of this.#tasks) isNew = state.openLane(state.consumer, priority).isNew || isNew;
    return isNew;
  }

  reserve(): void {
    this.openLanes();
    for (const state of new Set(this.#tasks.map((task) => task.state))) {
      state.room.require();
      if (state.flows.linkCount + 2 * this.#tasks.length <= FLOW_LINKS_MAX) continue;
      throw new VarveError(
        "ERR_QUEUE_FULL",
        `queue ${state.name} holds as many tasks of flows as it can. Nothing was enqueued.`,
        { details: { queue: state.name, limit: "flows", max: FLOW_LINKS_MAX } },
      );
    }
  }

  release(): void {}

  stage(): void {
    const engine = this.#engine;
    for (const task of this.#tasks) {
      const { state, priority, parts, due } = task;
      const offset = engine.append(state.consumer.lane(priority).stream, parts);
      this.#offsets.set(task, offset);
      if (due !== undefined) state.scheduled.stage(engine, priority, offset, 1, due);
    }
    for (const [flows, parents] of this.#parents()) flows.stageWait(engine, parents);
    for (const [flows, children] of this.#children()) flows.stageLink(engine, children);
  }

  apply(): void {
    for (const task of this.#tasks) {
      const { state, priority, due } = task;
      if (due !== undefined) {
        state.setAside(priority, 1);
        state.scheduled.schedule(priority, this.#offsets.get(task)!, 1, due, this.#engine.entryTime);
      }
      state.changed();
    }
    for (const [flows, parents] of this.#parents()) for (const parent of parents) flows.addParent(parent);
    for (const [flows, children] of this.#children()) for (const child of children) flows.addChild(child);
  }

  /** Names a task, once it is staged. */
  idOf(task: FlowTask): string {
    return taskId(task.priority, this.#offsets.get(task)!);
  }

  #placeOf(task: FlowTask): TaskPlace {
    return { lane: task.priority, offset: this.#offsets.get(task)! };
  }

  #parents() {
    const parents = this.#tasks.filter(({ children }) => children.length > 0);
    return byQueue(parents, (task) => ({ ...this.#placeOf(task), pending: task.children.length }));
  }

  #children() {
    const links = this.#tasks.flatMap((parent) =>
      parent.children.map((child) => ({ state: child.state, child, parent })),
    );
    return byQueue(links, ({ child, parent }) => {
      return { ...this.#placeOf(child), parent: { queueId: parent.state.id, ...this.#placeOf(parent) } };
    });
  }
}

function byQueue<T extends { readonly state: TaskState }, V>(
  items: readonly T[],
  read: (item: T) => V,
): Map<Flows, V[]> {
  const groups = new Map<Flows, V[]>();
  for (const item of items) {
    const { flows } = item.state;
    const group = groups.get(flows);
    if (group === undefined) groups.set(flows, [read(item)]);
    else group.push(read(item));
  }
  return groups;
}
