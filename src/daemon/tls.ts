/**
 * What the TLS listeners show and accept, checked before anything listens: a key that does not fit must not come to light
 * with the first client.
 */

import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext, type SecureVersion } from "node:tls";
import { VarveError } from "../api/errors.js";

export interface TlsFiles {
  /** PEM: the certificate, and behind it those that lead to its authority. */
  readonly cert: string;
  /** PEM, not encrypted. */
  readonly key: string;
  /** PEM: the authorities that certificates of clients must come from; undefined when clients show none. */
  readonly ca: string | undefined;
  /** Refuse clients without a certificate from `ca`. */
  readonly clientAuth: boolean;
}

/** For `tls.createServer`. */
export interface TlsSettings {
  readonly cert: string;
  readonly key: string;
  readonly ca: string | undefined;
  readonly requestCert: boolean;
  readonly rejectUnauthorized: boolean;
  readonly minVersion: SecureVersion;
}

export interface LoadedTls {
  readonly settings: TlsSettings;
  /** The certificate's, in milliseconds since 1970: outside of it clients refuse the server. */
  readonly validFromMs: number;
  readonly validToMs: number;
}

const MIN_VERSION = "TLSv1.2";
const PEM_CERTIFICATE = "-----BEGIN CERTIFICATE-----";

/**
 * @throws VarveError `ERR_OPTION`, naming the option and the file
 */
export function loadTls({ cert, key, ca, clientAuth }: TlsFiles): LoadedTls {
  if (clientAuth && ca === undefined) {
    throw new VarveError(
      "ERR_OPTION",
      "--tls-client-auth needs --tls-ca, the authorities that clients' certificates come from",
    );
  }
  const certText = read("--tls-cert", cert);
  const keyText = read("--tls-key", key);
  const caText = ca === undefined ? undefined : read("--tls-ca", ca);
  const [own] = certificates("--tls-cert", cert, certText);
  if (caText !== undefined) certificates("--tls-ca", ca!, caText);
  if (!own!.checkPrivateKey(privateKey(key, keyText))) {
    throw new VarveError("ERR_OPTION", `--tls-key: ${key} is not the key of the certificate in ${cert}`);
  }
  const settings: TlsSettings = {
    cert: certText,
    key: keyText,
    ca: caText,
    requestCert: caText !== undefined,
    rejectUnauthorized: clientAuth,
    minVersion: MIN_VERSION,
  };
  try {
    createSecureContext({ cert: certText, key: keyText, ca: caText, minVersion: MIN_VERSION });
  } catch (cause) {
    // A key that is too short, for one.
    throw new VarveError("ERR_OPTION", `--tls-cert: ${cert} cannot be used: ${reason(cause)}`, { cause });
  }
  return { settings, validFromMs: Date.parse(own!.validFrom), validToMs: Date.parse(own!.validTo) };
}

function read(option: string, file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch (cause) {
    throw new VarveError("ERR_OPTION", `${option}: ${file} cannot be read: ${(cause as Error).message}`, { cause });
  }
}

/** All in a file; at least one. */
function certificates(option: string, file: string, text: string): X509Certificate[] {
  const parts = text.split(PEM_CERTIFICATE).slice(1);
  if (parts.length === 0) throw new VarveError("ERR_OPTION", `${option}: ${file} holds no certificate in PEM`);
  return parts.map((part, index) => {
    try {
      return new X509Certificate(PEM_CERTIFICATE + part);
    } catch (cause) {
      const which = parts.length === 1 ? "the certificate" : `certificate ${index + 1} of ${parts.length}`;
      throw new VarveError("ERR_OPTION", `${option}: ${which} in ${file} is damaged: ${reason(cause)}`, { cause });
    }
  });
}

function privateKey(file: string, text: string): KeyObject {
  if (/ENCRYPTED/.test(text)) {
    throw new VarveError("ERR_OPTION", `--tls-key: ${file} is encrypted; varve takes a key without a passphrase`);
  }
  try {
    return createPrivateKey(text);
  } catch (cause) {
    throw new VarveError("ERR_OPTION", `--tls-key: ${file} holds no private key in PEM: ${reason(cause)}`, { cause });
  }
}

function reason(cause: unknown): string {
  return (cause as Error).message;
}
