/** Calls that are carried out once, however often they are made. */

import { directed, type Mutant, simulator, testFile } from "./mutant.js";

const cases = "test/field-cases/case-22-requests.test.ts";
const conformance = "test/conformance/embedded-sync.test.ts";

export const requestMutants: readonly Mutant[] = [
  {
    name: "a request is not part of its commit",
    file: "src/engine/engine.ts",
    search: "encodeRequests(this.operation(OP_REQUESTS, 0), request, answers);\n      this.endOperation();",
    replacement: "encodeRequests(new Encoder(64), request, answers);\n      void OP_REQUESTS;",
    breaks: "a call whose answer was lost is carried out once, over a crash too",
    killer: simulator,
  },
  {
    name: "requests are noted by an entry of their own",
    file: "src/engine/engine.ts",
    search: "encodeRequests(this.operation(OP_REQUESTS, 0), request, answers);\n      this.endOperation();",
    replacement:
      "const first = [...answers];\n      encodeRequests(new Encoder(64), request, answers);\n      const callback = () => {\n        this.begin(0, 0, request.bytesMax, true);\n" +
      "        encodeRequests(this.operation(OP_REQUESTS, 0), request, first);\n        this.endOperation();\n      };\n" +
      "      this.wake({ isDue: false, callback });",
    breaks: "a call and its name are durable together",
    killer: testFile(cases, "wherever it falls"),
  },
  {
    name: "a snapshot without the requests",
    file: "src/engine/catalog.ts",
    search: "if (!this.requests.isEmpty) this.requests.encode(encoder);",
    replacement: "",
    breaks: "a call is carried out once, over a restart too",
    killer: simulator,
  },
  {
    name: "what was forgotten is taken for new",
    file: "src/engine/requests.ts",
    search: 'return sequence <= known.forgotten ? { state: "forgotten", upTo: known.forgotten } : undefined;',
    replacement: "return undefined;",
    breaks: "what may have been carried out is not carried out again",
    killer: testFile("src/engine/requests.test.ts"),
  },
  {
    name: "a call under way is not waited for",
    file: "src/queues/requested.ts",
    search: "    engine.underWay.add(calls.nameOf(index), calls.kind, told, isRun ? index : undefined);",
    replacement: "",
    breaks: "calls at once with one name are one call",
    killer: testFile(conformance, "request: calls at once"),
  },
  {
    name: "a batch of calls does not look for those that were made",
    file: "src/queues/requested.ts",
    search: "if (!isNew(engine, calls.nameOf(index))) return false;",
    replacement: "if (calls.count === 0) return false;",
    breaks: "each call of a batch is carried out once",
    killer: testFile(conformance, "request: each of a batch"),
  },
  {
    name: "a repeated call does not wait to be durable",
    file: "src/queues/requested.ts",
    search: "    await untilDurable(engine, options, known.lsn);\n",
    replacement: "    void untilDurable;\n",
    breaks: "a call that is acknowledged in sync mode is durable, also when it was carried out before",
    killer: testFile(cases, "repeated to be durable"),
  },
  {
    name: "a call that is made again while it is under way does not wait to be durable",
    file: "src/queues/requested.ts",
    search: 'carriedOut?.state === "answered" ? carriedOut.lsn : engine.lsn',
    replacement: "carriedOut === undefined ? 0 : 0",
    breaks: "a call that is acknowledged in sync mode is durable, whatever mode the first of its name has",
    killer: testFile(cases, "before it was answered early"),
  },
  {
    name: "messages in a row that cannot be one commit are refused together",
    file: "src/queues/requested.ts",
    search: "    } catch {\n      // Each of them will say why.\n      if (run !== undefined)",
    replacement:
      "    } catch (error) {\n      if (run === undefined || run !== null) return Promise.reject(error);\n      if (run !== undefined)",
    breaks: "each call of a client is answered by itself",
    killer: testFile("test/native/runs.test.ts", "cannot be one commit"),
  },
  {
    name: "a call that is made twice at once is made twice",
    file: "src/queues/requested.ts",
    search: "    if (!isNew(engine, name)) {\n      end(engine, run, index);\n      return false;\n    }\n",
    replacement: "",
    breaks: "a call that is repeated is carried out once",
    killer: testFile("test/native/runs.test.ts", "made twice at once"),
  },
  {
    name: "calls overtake those that were collected before them",
    file: "src/native/connection.ts",
    search: "if (this.#putIn === puts.turn) puts.carryOut();",
    replacement: "void puts;",
    breaks: "calls of one client to one queue are made in their order",
    killer: testFile("test/native/runs.test.ts", "finds them made"),
  },
  {
    name: "sets that die overtake those that were collected before them",
    file: "src/kestrel/run.ts",
    search: "    this.#front.puts.carryOut();\n",
    replacement: "",
    breaks: "what a client stores comes out in its order",
    killer: testFile("test/kestrel/hostile.test.ts", "keep their order"),
  },
  {
    name: "an error of one get is told to all of its turn",
    file: "src/kestrel/takes.ts",
    search: "      takers[from]!.failed(error);\n      takeForRest(from + 1);\n",
    replacement: "      for (let index = from; index < to; index++) takers[index]!.failed(error);\n",
    breaks: "what is behind a damaged item is given to others",
    killer: testFile("test/kestrel/hostile.test.ts", "gets of one turn"),
  },
  {
    name: "a redrive that is made again begins anew",
    file: "src/queues/dead-letters.ts",
    search: "let so = before ?? this.#begin(diedBy);",
    replacement: "void before;\n      let so = this.#begin(diedBy);",
    breaks: "what was interrupted is finished, and all of it is counted",
    killer: directed("a redrive or a purge that the power cut"),
  },
];
