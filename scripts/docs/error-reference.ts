import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type ErrorRow, type ErrorTable, platformErrors } from '../../src/platform/errors/error-table.ts';

const SERVICES = ['bridge', 'completions', 'accounts'];

/** docs/errors.md: the rows of every error table, so that the page cannot tell anything else than the program does. */
export async function errorReference(): Promise<string> {
  const tables = [section('Everywhere', 'Any part of Trestle may answer with these.', platformErrors)];
  for (const service of SERVICES) {
    const table = await readTable(service);
    if (table === undefined) continue;
    const own = Object.fromEntries(Object.entries(table).filter(([code, row]) => !isPlatformRow(code, row)));
    tables.push(
      section(titleOf(service), `Besides those above, or worded differently, in the ${service} service.`, own),
    );
  }
  return `# Errors

Written by \`npm run docs\` from the error tables in the sources; do not edit.

Every error has a code. Over HTTP it comes with the status shown, over JSON-RPC with the number. Names in braces are
filled in. Each service puts the code into its own body; the response always carries a request id that is in the log too.

${tables.join('\n')}`;
}

async function readTable(service: string): Promise<ErrorTable | undefined> {
  const url = new URL(`../../src/${service}/errors.ts`, import.meta.url);
  if (!existsSync(fileURLToPath(url))) return undefined;
  const exported: Record<string, unknown> = await import(url.href);
  return Object.values(exported).find(isErrorTable);
}

function isErrorTable(value: unknown): value is ErrorTable {
  return typeof value === 'object' && value !== null && 'INTERNAL_ERROR' in value;
}

function isPlatformRow(code: string, row: ErrorRow): boolean {
  return (platformErrors as ErrorTable)[code] === row;
}

function section(title: string, introduction: string, table: ErrorTable): string {
  const rows = Object.entries(table).map(
    ([code, { status, rpc, message }]) => `| \`${code}\` | ${status} | ${rpc ?? ''} | ${escapeCell(message)} |`,
  );
  return `## ${title}

${introduction}

| Code | HTTP | JSON-RPC | Message |
| --- | --- | --- | --- |
${rows.join('\n')}
`;
}

function escapeCell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

function titleOf(service: string): string {
  return service.charAt(0).toUpperCase() + service.slice(1);
}
