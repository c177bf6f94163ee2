export { bytes, type Codec, json, text } from "./api/codec.js";
export type * from "./api/contract.js";
export { type ErrorCode, isVarveError, VarveError } from "./api/errors.js";
export { Message, type MessageOptions, message } from "./api/message.js";
export { open } from "./queues/open.js";
