/**
 * What is compared, with how much work in a round. Stores differ in speed by orders of magnitude, so that each gets a number of
 * messages which takes it a good part of a second; rates are compared.
 */

const KIB = 1024;

/** The bare loops are named as the harness names them. */
export const RAW_WRITE = "raw write";
export const OVERWRITE = "overwrite + fdatasync";
export const OVERWRITE_BLOCKING = "overwrite + fdatasyncSync";

export const CASES = [
  {
    id: "append-batch",
    title: "append 1 KiB, batches of 64, 8 appenders, async",
    durability: "async",
    messageBytes: KIB,
    messages: { varve: 131_072, [RAW_WRITE]: 131_072, peer: 131_072 },
    bare: [RAW_WRITE],
  },
  {
    id: "append-single",
    title: "append 1 KiB one by one, 64 at a time, async",
    durability: "async",
    messageBytes: KIB,
    messages: { varve: 131_072, [RAW_WRITE]: 131_072, peer: 24_576 },
    bare: [RAW_WRITE],
  },
  {
    id: "append-sync",
    title: "append 1 KiB one by one, 64 at a time, sync",
    durability: "sync",
    messageBytes: KIB,
    messages: { varve: 65_536, peer: 4096 },
    bare: [],
  },
  {
    id: "append-sequential",
    title: "append 1 KiB one by one, one at a time, sync",
    durability: "sync",
    messageBytes: KIB,
    messages: { varve: 8192, [OVERWRITE]: 8192, [OVERWRITE_BLOCKING]: 8192 },
    bare: [OVERWRITE, OVERWRITE_BLOCKING],
  },
  {
    id: "scan",
    title: "scan 1 KiB records from disk files, reopened",
    durability: "async",
    messageBytes: KIB,
    messages: { varve: 786_432, peer: 786_432 },
    // Stores nothing, so it needs no memory made warm; handing back so much of it would disturb the scan.
    stores: 0,
    bare: [],
  },
  {
    id: "cycle-single",
    title: "enqueue + dequeue + ack 64 B one by one, 64 at a time, async",
    durability: "async",
    messageBytes: 64,
    messages: { varve: 131_072, peer: 12_288 },
    bare: [],
  },
  {
    id: "cycle-batch",
    title: "enqueue + dequeue + ack 64 B, batches of 64, 8 workers, async",
    durability: "async",
    messageBytes: 64,
    messages: { varve: 262_144, peer: 65_536 },
    bare: [],
  },
];
