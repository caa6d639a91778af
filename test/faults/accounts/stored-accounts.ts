import { DatabaseSync } from 'node:sqlite';
import type { StoredAccounts } from './check-operations.ts';

/** What is in the file of a server that has ended. */
export function readStoredAccounts(file: string): StoredAccounts {
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    const rows = <Row>(query: string): Row[] => database.prepare(query).all() as Row[];
    const users = rows<{ id: string; email: string; step: number; totp: number }>(
      `SELECT users.id, email, coalesce(totp.counter, 0) AS step, coalesce(totp.state = 'active', 0) AS totp FROM users
        LEFT JOIN credentials totp ON totp.kind = 'totp' AND totp.subject = users.id`,
    );
    const tokens = rows<{ hash: string; session: string; generation: number; used: number | null }>(
      'SELECT token_hash AS hash, session_id AS session, generation, used_at AS used FROM refresh_tokens',
    );
    const sessions = rows<{ id: string; generation: number }>('SELECT id, generation FROM sessions');
    const [problem] = rows<{ integrity_check: string }>('PRAGMA integrity_check');
    return {
      users: new Map(users.map(({ id, email, step, totp }) => [email, { id, lastStep: step, hasTotp: totp === 1 }])),
      refreshTokens: new Map(
        tokens.map(({ hash, session, generation, used }) => [hash, { sessionId: session, generation, usedAt: used }]),
      ),
      sessions: new Map(sessions.map(({ id, generation }) => [id, generation])),
      integrity: problem?.integrity_check ?? 'no answer',
    };
  } finally {
    database.close();
  }
}
