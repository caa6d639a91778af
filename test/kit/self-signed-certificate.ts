import { generateKeyPairSync, sign } from 'node:crypto';

export interface SelfSignedCertificate {
  /** PEM. */
  readonly key: string;
  readonly cert: string;
}

/** A certificate for `localhost` and 127.0.0.1 that nobody trusts unless told to: X.509 version 3 by hand (RFC 5280). */
export function makeSelfSignedCertificate(): SelfSignedCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const ecdsaWithSha256 = sequence(oid(0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02));
  const name = sequence(element(0x31, sequence(oid(0x55, 0x04, 0x03), text(0x0c, 'localhost'))));
  const day = 86_400_000;
  const validity = sequence(utcTime(Date.now() - day), utcTime(Date.now() + day));
  const alternativeNames = sequence(text(0x82, 'localhost'), element(0x87, Buffer.from([127, 0, 0, 1])));
  const extensions = sequence(
    sequence(oid(0x55, 0x1d, 0x13), boolean(true), element(0x04, sequence(boolean(true)))),
    sequence(oid(0x55, 0x1d, 0x11), element(0x04, alternativeNames)),
  );
  const content = sequence(
    element(0xa0, element(0x02, Buffer.from([2]))),
    element(0x02, Buffer.from([1])),
    ecdsaWithSha256,
    name,
    validity,
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    element(0xa3, extensions),
  );
  const signature = Buffer.concat([Buffer.from([0]), sign('sha256', content, privateKey)]);
  const certificate = sequence(content, ecdsaWithSha256, element(0x03, signature));
  const lines = certificate.toString('base64').match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    cert: `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`,
  };
}

function element(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const head = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...head]), content]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return element(0x30, ...parts);
}

function oid(...bytes: readonly number[]): Buffer {
  return element(0x06, Buffer.from(bytes));
}

function text(tag: number, value: string): Buffer {
  return element(tag, Buffer.from(value));
}

function boolean(value: boolean): Buffer {
  return element(0x01, Buffer.from([value ? 255 : 0]));
}

function utcTime(moment: number): Buffer {
  const digits = new Date(moment).toISOString().replaceAll(/[-:T]/g, '');
  return text(0x17, `${digits.slice(2, 14)}Z`);
}
