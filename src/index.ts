export { bytes, type Codec, json, text } from "./api/codec.js";
export type * from "./api/contract.js";
export { type ErrorCode, isVarveError, VarveError } from "./api/errors.js";
export { Message, type MessageOptions, message } from "./api/message.js";
export { type DialledQueue, dial } from "./client/dial.js";
export type { DialOptions, DialTlsOptions } from "./client/options.js";
export {
  dumpFile,
  type VerifyOptions,
  type VerifyProblem,
  type VerifyProgress,
  type VerifyReport,
  verifyDirectory,
} from "./queues/inspect.js";
export { type RepairLoss, type RepairOptions, type RepairReport, repairDirectory } from "./queues/repair.js";
export { open } from "./shared/open.js";
export { Discard, Retry, type RetryOptions } from "./worker/outcome.js";
