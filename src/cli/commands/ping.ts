import type { Command } from "commander";
import { connect, dialTarget } from "../connect.js";
import { wholeNumber, withCommonOptions } from "../options.js";
import { action, type Run } from "../run.js";

interface PingOptions {
  readonly count: number;
}

/** Whether there is an answer, and how soon. */
export function registerPing(program: Command): void {
  const command = program
    .command("ping")
    .summary("ask a daemon, or the owner of a directory, for an answer")
    .description(
      "Asks the daemon at --target for an answer and tells how long each took, in milliseconds. Without a target it opens the\ndirectory, or reaches the process that owns it, and asks for its statistics.",
    )
    .option("-n, --count <n>", "how often", wholeNumber(1), 3);
  action(withCommonOptions(command), async (run: Run<PingOptions>) => {
    const { target, count } = run.options;
    const dialled = target === undefined ? undefined : await dialTarget(target, run.options);
    const queue = dialled ?? (await connect(run.options, "existing"));
    try {
      for (let index = 0; index < count && !run.signal.aborted; index++) {
        const startedMs = performance.now();
        if (dialled !== undefined) await dialled.ping();
        else await queue.stats();
        const ms = Number((performance.now() - startedMs).toFixed(3));
        const where = target ?? run.options.dataDir;
        await run.print({ target: where, ms }, () => `${where} answered in ${ms} ms`);
      }
    } finally {
      await queue.close();
    }
    return run.interruptedCode;
  });
}
