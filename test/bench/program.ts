/** The bench commands alone, as a program. */

import { Command } from "commander";
import { registerBench } from "../../src/bench/command.js";

const program = new Command("varve").enablePositionalOptions().option("--json");
registerBench(program);
await program.parseAsync();
