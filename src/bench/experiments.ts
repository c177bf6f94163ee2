import { backlog } from "./backlog.js";
import { fill, measureOpen } from "./open.js";

/** What a child process can be asked to do. */
export const EXPERIMENTS = { backlog, "open-fill": fill, "open-measure": measureOpen };

export type Experiments = typeof EXPERIMENTS;
