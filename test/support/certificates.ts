/**
 * Certificates and keys for tests, made when they are needed: there is nothing that runs out, and no key that a search for
 * secrets would find. Just enough of X.509 for that, by hand: P-256 keys, one common name, and what TLS looks at.
 */

import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";

export interface Certificate {
  /** PEM. */
  readonly cert: string;
  /** PEM, PKCS #8. */
  readonly key: string;
  readonly commonName: string;
  readonly privateKey: KeyObject;
}

export interface CertificateOptions {
  /** undefined: signed by itself. */
  readonly issuer?: Certificate | undefined;
  /** May sign others. */
  readonly authority?: boolean | undefined;
  /** Two digits of the years in which it begins and ends, at the first of January. */
  readonly years?: readonly [from: string, to: string] | undefined;
}

/** Servers are called localhost, and 127.0.0.1 too. */
export function makeCertificate(commonName: string, options: CertificateOptions = {}): Certificate {
  const { issuer, authority = false, years = ["20", "49"] } = options;
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const publicInfo = publicKey.export({ type: "spki", format: "der" });
  const extensions = [
    extension("551d13", sequence(authority ? boolean(true) : Buffer.alloc(0)), true), // basicConstraints
    extension("551d11", sequence(der(0x82, Buffer.from("localhost")), der(0x87, Buffer.from([127, 0, 0, 1])))), // subjectAltName
  ];
  const body = sequence(
    der(0xa0, integer(Buffer.from([2]))), // version 3
    integer(Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ECDSA_SHA256,
    name(issuer?.commonName ?? commonName),
    sequence(...years.map((year) => der(0x17, Buffer.from(`${year}0101000000Z`)))),
    name(commonName),
    publicInfo,
    der(0xa3, sequence(...extensions)),
  );
  const signature = sign("sha256", body, issuer?.privateKey ?? privateKey);
  const whole = sequence(body, ECDSA_SHA256, der(0x03, Buffer.from([0]), signature));
  return {
    cert: pem("CERTIFICATE", whole),
    key: privateKey.export({ type: "pkcs8", format: "pem" }) as string,
    commonName,
    privateKey,
  };
}

/** As Node writes it. */
export function fingerprintOf({ cert }: Certificate): string {
  const bytes = Buffer.from(cert.replaceAll(/-----.*-----|\s/g, ""), "base64");
  const hex = createHash("sha256").update(bytes).digest("hex").toUpperCase();
  return hex.match(/../g)!.join(":");
}

function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const head =
    length < 128 ? [tag, length] : length < 256 ? [tag, 0x81, length] : [tag, 0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from(head), content]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return der(0x30, ...parts);
}

function integer(bytes: Buffer): Buffer {
  return der(0x02, bytes);
}

function boolean(value: boolean): Buffer {
  return der(0x01, Buffer.from([value ? 255 : 0]));
}

function identifier(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, "hex"));
}

function name(commonName: string): Buffer {
  return sequence(der(0x31, sequence(identifier("550403"), der(0x0c, Buffer.from(commonName)))));
}

function extension(id: string, content: Buffer, critical = false): Buffer {
  return sequence(identifier(id), ...(critical ? [boolean(true)] : []), der(0x04, content));
}

const ECDSA_SHA256 = sequence(identifier("2a8648ce3d040302"));

function pem(label: string, bytes: Buffer): string {
  const lines = bytes.toString("base64").match(/.{1,64}/g)!;
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}
