import { claimThread } from '../../src/platform/database/sqlite/sqlite-thread.ts';

const LINGER_MS = 250;

/**
 * Called before a SQLite database is closed: its thread goes on for a moment, so that the next test of the file need
 * not start another, which takes longer than most tests.
 */
export function handOnDatabaseThread(): void {
  const claim = claimThread('writer');
  setTimeout(() => void claim.release(), LINGER_MS);
}
