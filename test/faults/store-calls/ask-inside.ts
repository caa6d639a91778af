import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { ErrorTable } from '../../../src/platform/errors/error-table.ts';
import type { Asked } from './scenario.ts';

/** Asks without HTTP, as an operator's command or another service does; its errors are those of the table. */
export async function askInside<Result>(table: ErrorTable, work: () => Promise<Result>): Promise<Asked<Result>> {
  try {
    return { told: await work(), code: '', problems: [] };
  } catch (error) {
    if (!(error instanceof AppError)) return { code: 'internal_error', problems: [`it threw ${error}`] };
    const problems = Object.hasOwn(table, error.code) ? [] : [`${error.code} is not documented`];
    return { code: error.code.toLowerCase(), problems };
  }
}
