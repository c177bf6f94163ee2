/**
 * better-sqlite3, tuned for each case by trying: page size, exclusive locking (varve owns its directory alone too),
 * multi-row inserts, the order of columns in the index. It is synchronous: concurrency would gain it nothing.
 */

import { join } from "node:path";
import Database from "better-sqlite3";

export const name = "better-sqlite3";

const LEASE_MS = 30_000;

export const settings = {
  "append-batch": "WAL, synchronous=NORMAL, exclusive, 16 KiB pages, one multi-row insert per transaction",
  "append-single": "WAL, synchronous=NORMAL, exclusive, 4 KiB pages, one insert per transaction",
  "append-sync": "WAL, synchronous=FULL, exclusive, 4 KiB pages, one insert per transaction",
  scan: "4 KiB pages, checkpointed, iterate() over raw rows",
  "cycle-single":
    "WAL, synchronous=NORMAL, exclusive, 4 KiB pages, index on due time, UPDATE ... RETURNING, one statement per transaction",
  "cycle-batch":
    "the same with 8 KiB pages; one multi-row insert, one UPDATE ... LIMIT n RETURNING and one DELETE over json_each per batch",
};

function openDatabase(directory, { pageBytes = 4096, synchronous = "NORMAL", tuned = true } = {}) {
  const db = new Database(join(directory, "bench.db"));
  if (tuned) {
    db.pragma(`page_size = ${pageBytes}`);
    db.pragma("locking_mode = EXCLUSIVE");
    db.pragma("cache_size = -65536");
  }
  db.pragma("journal_mode = WAL");
  db.pragma(`synchronous = ${synchronous}`);
  return db;
}

function openLog(directory, options) {
  const db = openDatabase(directory, options);
  db.exec("CREATE TABLE log (id INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL, payload BLOB NOT NULL)");
  return db;
}

const rowsOf = (count) => Array(count).fill("(?, ?)").join(", ");

function pairs(first, payloads) {
  const values = [];
  for (const payload of payloads) values.push(first, payload);
  return values;
}

function appendSingly(directory, { payloads }, options) {
  const db = openLog(directory, options);
  const insert = db.prepare("INSERT INTO log (timestamp, payload) VALUES (?, ?)");
  return {
    run(messages) {
      for (let done = 0; done < messages; done++) insert.run(Date.now(), payloads[done % payloads.length]);
      return messages;
    },
    close: () => db.close(),
  };
}

function openTasks(directory, options) {
  const db = openDatabase(directory, options);
  // A lease is a due time in the future: an expired one comes back by itself, and one index serves both.
  db.exec(`
    CREATE TABLE task (
      id INTEGER PRIMARY KEY,
      due INTEGER NOT NULL,
      attempt INTEGER NOT NULL DEFAULT 0,
      token INTEGER,
      payload BLOB NOT NULL
    );
    CREATE INDEX task_due ON task (due);
  `);
  return db;
}

function expect(actual, wanted, what) {
  if (actual !== wanted) throw new Error(`better-sqlite3: ${what}: ${actual} instead of ${wanted}`);
}

export const cases = {
  "append-batch"(directory, { payloads }) {
    const db = openLog(directory, { pageBytes: 16_384 });
    const insert = db.prepare(`INSERT INTO log (timestamp, payload) VALUES ${rowsOf(payloads.length)}`);
    return {
      run(messages) {
        for (let done = 0; done < messages; done += payloads.length) insert.run(pairs(Date.now(), payloads));
        return messages;
      },
      close: () => db.close(),
    };
  },

  "append-single": (directory, work) => appendSingly(directory, work),
  "append-sync": (directory, work) => appendSingly(directory, work, { synchronous: "FULL" }),

  scan(directory, { payloads, messages }) {
    const db = openLog(directory);
    const insert = db.prepare(`INSERT INTO log (timestamp, payload) VALUES ${rowsOf(payloads.length)}`);
    for (let done = 0; done < messages; done += payloads.length) insert.run(pairs(Date.now(), payloads));
    db.pragma("wal_checkpoint(TRUNCATE)");
    const select = db.prepare("SELECT id, timestamp, payload FROM log ORDER BY id").raw();
    return {
      run() {
        let done = 0;
        let bytes = 0;
        for (const row of select.iterate()) {
          bytes += row[2].length;
          done += 1;
        }
        return { done, bytes };
      },
      close: () => db.close(),
    };
  },

  "cycle-single"(directory, { payloads }) {
    const db = openTasks(directory);
    const enqueue = db.prepare("INSERT INTO task (due, payload) VALUES (?, ?)");
    const lease = db.prepare(`
      UPDATE task SET due = ?, attempt = attempt + 1, token = ?
      WHERE id = (SELECT id FROM task WHERE due <= ? ORDER BY due LIMIT 1)
      RETURNING id, attempt, payload
    `);
    const ack = db.prepare("DELETE FROM task WHERE id = ? AND token = ?");
    let token = 0;
    return {
      run(messages) {
        for (let done = 0; done < messages; done++) {
          enqueue.run(Date.now(), payloads[done % payloads.length]);
          const nowMs = Date.now();
          token += 1;
          const task = lease.get(nowMs + LEASE_MS, token, nowMs);
          expect(ack.run(task.id, token).changes, 1, "acked");
        }
        return messages;
      },
      close: () => db.close(),
    };
  },

  "cycle-batch"(directory, { payloads }) {
    const db = openTasks(directory, { pageBytes: 8192 });
    const enqueue = db.prepare(`INSERT INTO task (due, payload) VALUES ${rowsOf(payloads.length)}`);
    const lease = db.prepare(`
      UPDATE task SET due = ?, attempt = attempt + 1, token = ?
      WHERE id IN (SELECT id FROM task WHERE due <= ? ORDER BY due LIMIT ${payloads.length})
      RETURNING id, attempt, payload
    `);
    const ack = db.prepare("DELETE FROM task WHERE id IN (SELECT value FROM json_each(?)) AND token = ?");
    let token = 0;
    return {
      run(messages) {
        for (let done = 0; done < messages; done += payloads.length) {
          const nowMs = Date.now();
          enqueue.run(pairs(nowMs, payloads));
          token += 1;
          const tasks = lease.all(nowMs + LEASE_MS, token, nowMs);
          const acked = ack.run(JSON.stringify(tasks.map(({ id }) => id)), token).changes;
          expect(acked, payloads.length, "acked");
        }
        return messages;
      },
      close: () => db.close(),
    };
  },
};

/** As most programs use it: the journal and synchronous are set, nothing else. */
export const plain = {
  name: "better-sqlite3 (plain)",
  settings: {
    "append-batch": "WAL, synchronous=NORMAL, transactions of one prepared insert per record",
    "append-single": "WAL, synchronous=NORMAL, one insert per transaction",
    "append-sync": "WAL, synchronous=FULL, one insert per transaction",
  },
  cases: {
    "append-batch"(directory, { payloads }) {
      const db = openLog(directory, { tuned: false });
      const insert = db.prepare("INSERT INTO log (timestamp, payload) VALUES (?, ?)");
      const insertAll = db.transaction(() => {
        const nowMs = Date.now();
        for (const payload of payloads) insert.run(nowMs, payload);
      });
      return {
        run(messages) {
          for (let done = 0; done < messages; done += payloads.length) insertAll();
          return messages;
        },
        close: () => db.close(),
      };
    },
    "append-single": (directory, work) => appendSingly(directory, work, { tuned: false }),
    "append-sync": (directory, work) => appendSingly(directory, work, { tuned: false, synchronous: "FULL" }),
  },
};
