import { hash } from 'node:crypto';
import type { SqlConnection } from './engine.ts';
import type { SqlValue } from './statement.ts';
import { type Row, readPages, readTables, type Table } from './tables.ts';

/** What a table holds, said so shortly that two copies can be compared, on whichever engine they are. */
export interface TableDigest {
  readonly name: string;
  readonly rows: number;
  readonly checksum: string;
}

const MODULUS = 2n ** 256n;

export async function digestTables(connection: SqlConnection): Promise<TableDigest[]> {
  const digests: TableDigest[] = [];
  for (const table of await readTables(connection)) digests.push(await digestTable(connection, table));
  return digests;
}

/** The sum of the checksums of all rows: it does not depend on their order, which engines may see differently. */
export async function digestTable(connection: SqlConnection, table: Table): Promise<TableDigest> {
  let rows = 0;
  let sum = 0n;
  for await (const page of readPages(connection, table)) {
    rows += page.length;
    for (const row of page) sum += BigInt(`0x${hash('sha256', canonicalRow(table.columns, row))}`);
    sum %= MODULUS;
  }
  return { name: table.name, rows, checksum: sum.toString(16).padStart(64, '0') };
}

/** Tables that differ, are missing, or are too many. */
export function compareDigests(expected: readonly TableDigest[], found: readonly TableDigest[]): string[] {
  const left = new Map(found.map((table) => [table.name, table]));
  const problems: string[] = [];
  for (const { name, rows, checksum } of expected) {
    const other = left.get(name);
    left.delete(name);
    if (other === undefined) problems.push(`table ${name} is missing`);
    else if (other.rows !== rows) problems.push(`table ${name} has ${other.rows} rows instead of ${rows}`);
    else if (other.checksum !== checksum) problems.push(`table ${name} has other contents`);
  }
  for (const name of left.keys()) problems.push(`table ${name} should not exist`);
  return problems;
}

function canonicalRow(columns: readonly string[], row: Row): string {
  return columns.map((name) => `${name}=${canonicalValue(row[name])};`).join('');
}

/** Each kind of value looks different from all others, and says how long it is. */
function canonicalValue(value: SqlValue | undefined): string {
  if (typeof value === 'string') return `t${value.length}:${value}`;
  if (value instanceof Uint8Array) return `b${value.length}:${Buffer.from(value).toString('hex')}`;
  return value === null ? 'null' : `n${value}`;
}
