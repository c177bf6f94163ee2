/**
 * Callbacks for the abort of a signal, one listener for all of them: many workers may share the signal that stops them,
 * and Node warns of a leak when a signal has more than ten listeners.
 */

interface Watch {
  readonly callbacks: Set<() => void>;
  readonly listener: () => void;
}

const watches = new WeakMap<AbortSignal, Watch>();

/** Calls back once when the signal is aborted, unless the returned function is called before. */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  let watch = watches.get(signal);
  if (watch === undefined) {
    const callbacks = new Set<() => void>();
    const listener = () => {
      watches.delete(signal);
      for (const each of callbacks) each();
    };
    watch = { callbacks, listener };
    watches.set(signal, watch);
    signal.addEventListener("abort", listener, { once: true });
  }
  const { callbacks, listener } = watch;
  callbacks.add(callback);
  return () => {
    if (!callbacks.delete(callback) || callbacks.size > 0) return;
    signal.removeEventListener("abort", listener);
    if (watches.get(signal) === watch) watches.delete(signal);
  };
}
