/** File systems of the test's own: an ext4 image on a loop device, a tmpfs. Both need the rights of root. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, truncateSync, writeFileSync } from "node:fs";

/** The machine cannot do it; the message says why, in one line. */
export class Refused extends Error {}

export function command(program: string, ...args: string[]): string {
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
  } catch (error) {
    const { code, stderr } = error as { code?: string; stderr?: string };
    const reason = code === "ENOENT" ? "is not installed" : (stderr ?? "").trim().split("\n").join("; ");
    throw new Refused(`${program} ${args[0] ?? ""}: ${reason}`);
  }
}

export class Mount {
  readonly path: string;
  readonly #source: readonly string[];
  #mounted = false;

  constructor(path: string, source: readonly string[]) {
    this.path = path;
    this.#source = source;
    mkdirSync(path, { recursive: true });
  }

  mount(): void {
    command("mount", ...this.#source, this.path);
    this.#mounted = true;
  }

  unmount(): void {
    if (!this.#mounted) return;
    command("umount", this.path);
    this.#mounted = false;
  }
}

export function tmpfs(path: string, bytes: number): Mount {
  return new Mount(path, ["-t", "tmpfs", "-o", `size=${bytes}`, "tmpfs"]);
}

/** An ext4 file system in a file. */
export class Image {
  readonly mount: Mount;
  readonly #device: string;

  constructor(file: string, path: string, bytes: number) {
    writeFileSync(file, "");
    truncateSync(file, bytes);
    command("mkfs.ext4", "-q", "-F", "-m", "0", file);
    this.#device = command("losetup", "--find", "--show", file);
    this.mount = new Mount(path, ["-t", "ext4", this.#device]);
  }

  remove(): void {
    this.mount.unmount();
    command("losetup", "--detach", this.#device);
  }
}

/**
 * Ends a mounted ext4 file system as a power cut would: from then on nothing more reaches its device, not even what its
 * journal holds in memory. Node has no ioctl, so a line of Perl stands ready to make the call at once.
 */
export class PowerSwitch {
  // EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32); 2 is EXT4_GOING_FLAGS_NOLOGFLUSH.
  static readonly #SCRIPT = `
    $| = 1;
    open(my $folder, "<", $ARGV[0]) or die "open: $!\\n";
    my $flags = pack("L", 2);
    print "ready\\n";
    defined(<STDIN>) or exit 0;
    ioctl($folder, 0x8004587d, $flags) or die "the shutdown ioctl: $!\\n";
    print "cut\\n";
  `;
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;
  #output = "";
  #errors = "";
  #ended = false;
  #heard: () => void = () => {};

  constructor(path: string) {
    this.#child = spawn("perl", ["-e", PowerSwitch.#SCRIPT, path], { stdio: ["pipe", "pipe", "pipe"] });
    this.#child.stdin?.on("error", () => {});
    this.#child.stdout?.on("data", (chunk: Buffer) => {
      this.#output += chunk.toString();
      this.#heard();
    });
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#errors += chunk.toString();
    });
    this.#exited = new Promise((resolve) => {
      const ended = (): void => {
        this.#ended = true;
        this.#heard();
        resolve();
      };
      this.#child.once("error", (error) => {
        this.#errors += error.message;
        ended();
      });
      this.#child.once("close", ended);
    });
  }

  ready(): Promise<void> {
    return this.#hear("ready");
  }

  async cut(): Promise<void> {
    this.#child.stdin?.write("now\n");
    await this.#hear("cut");
  }

  /** Lets go of the file system. */
  async end(): Promise<void> {
    this.#child.stdin?.end();
    await this.#exited;
  }

  async #hear(word: string): Promise<void> {
    while (!this.#output.includes(`${word}\n`)) {
      if (this.#ended) throw new Refused(`perl: ${this.#errors.trim() || "ended early"}`);
      await new Promise<void>((resolve) => {
        this.#heard = resolve;
      });
    }
  }
}
