import { checkpointMutants } from "./checkpoint.js";
import { commitMutants } from "./commit.js";
import { featureMutants } from "./features.js";
import { groupMutants } from "./groups.js";
import { logMutants } from "./log.js";
import type { Mutant } from "./mutant.js";
import { queueMutants } from "./queues.js";
import { readMutants } from "./read.js";
import { requestMutants } from "./requests.js";
import { taskMutants } from "./tasks.js";

export const mutants: readonly Mutant[] = [
  ...commitMutants,
  ...logMutants,
  ...checkpointMutants,
  ...readMutants,
  ...taskMutants,
  ...groupMutants,
  ...queueMutants,
  ...requestMutants,
  ...featureMutants,
];
