import assert from "node:assert/strict";
import { generateKeyPairSync, X509Certificate } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { fingerprintOf, makeCertificate } from "../../test/support/certificates.js";
import { withDirectory } from "../../test/support/directories.js";
import { rejectsWith } from "../../test/support/expect.js";
import { loadTls, type TlsFiles } from "./tls.js";

test("a certificate, its key and an authority are loaded, for TLS 1.2 and newer", () =>
  withDirectory(async (directory) => {
    const files = write(directory);
    const { settings, validFromMs, validToMs } = loadTls(files);
    assert.deepEqual(
      [settings.minVersion, settings.requestCert, settings.rejectUnauthorized, settings.ca],
      ["TLSv1.2", true, false, AUTHORITY.cert],
    );
    assert.deepEqual([validFromMs, validToMs], [Date.UTC(2020, 0, 1), Date.UTC(2049, 0, 1)]);
    const mutual = loadTls({ ...files, clientAuth: true }).settings;
    assert.deepEqual([mutual.requestCert, mutual.rejectUnauthorized], [true, true]);
    const plain = loadTls({ ...files, ca: undefined }).settings;
    assert.deepEqual([plain.requestCert, plain.rejectUnauthorized, plain.ca], [false, false, undefined]);
  }));

test("whatever cannot work is refused, with the option and the file", () =>
  withDirectory(async (directory) => {
    const other = makeCertificate("other");
    const encrypted = generateKeyPairSync("ec", {
      namedCurve: "P-256",
      publicKeyEncoding: { type: "spki", format: "pem" },
      privateKeyEncoding: { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "x" },
    }).privateKey;
    const cases: [change: Partial<Contents>, message: RegExp][] = [
      [{ cert: undefined }, /^--tls-cert: .*cert\.pem cannot be read/],
      [{ key: undefined }, /^--tls-key: .*key\.pem cannot be read/],
      [{ ca: undefined }, /^--tls-ca: .*ca\.pem cannot be read/],
      [{ cert: "" }, /^--tls-cert: .*holds no certificate/],
      [{ ca: "nothing" }, /^--tls-ca: .*holds no certificate/],
      [{ cert: SERVER.key }, /^--tls-cert: .*holds no certificate/],
      [{ cert: SERVER.cert.slice(0, 200) }, /^--tls-cert: the certificate in .* is damaged/],
      [{ ca: AUTHORITY.cert + SERVER.cert.slice(0, 150) }, /^--tls-ca: certificate 2 of 2 in .* is damaged/],
      [{ key: "" }, /^--tls-key: .*holds no private key/],
      [{ key: SERVER.cert }, /^--tls-key: .*holds no private key/],
      [{ key: other.key }, /^--tls-key: .* is not the key of the certificate in /],
      [{ key: encrypted }, /^--tls-key: .* is encrypted/],
    ];
    for (const [change, message] of cases) {
      const files = write(directory, change);
      const error = await rejectsWith("ERR_OPTION", () => loadTls(files), message);
      assert.ok(!error.message.includes("PRIVATE KEY"));
    }
    const files = write(directory);
    await rejectsWith("ERR_OPTION", () => loadTls({ ...files, ca: undefined, clientAuth: true }), /needs --tls-ca/);
  }));

test("the certificates that tests make are what they say", () => {
  const certificate = new X509Certificate(SERVER.cert);
  assert.ok(certificate.verify(new X509Certificate(AUTHORITY.cert).publicKey));
  assert.equal(certificate.fingerprint256, fingerprintOf(SERVER));
  assert.equal(certificate.checkIP("127.0.0.1"), "127.0.0.1");
});

const AUTHORITY = makeCertificate("authority", { authority: true });
const SERVER = makeCertificate("server", { issuer: AUTHORITY });

interface Contents {
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly ca: string | undefined;
}

/** Writes the files, or those that are not undefined. */
function write(directory: string, change: Partial<Contents> = {}): TlsFiles {
  const contents: Contents = { cert: SERVER.cert, key: SERVER.key, ca: AUTHORITY.cert, ...change };
  const at = (name: keyof Contents): string => {
    const file = join(directory, `${name}.pem`);
    const text = contents[name];
    if (text === undefined) rmSync(file, { force: true });
    else writeFileSync(file, text);
    return file;
  };
  return { cert: at("cert"), key: at("key"), ca: at("ca"), clientAuth: false };
}
