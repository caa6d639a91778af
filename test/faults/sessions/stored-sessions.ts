import { DatabaseSync } from 'node:sqlite';
import { wireText } from '../../../src/bridge/sessions/update-text.ts';
import type { StoredSessions, Update } from './check-operations.ts';

/** What the file has, read without the program. */
export function readStoredSessions(file: string): StoredSessions {
  using database = new DatabaseSync(file, { readOnly: true });
  return storedSessionsOf((sql) => database.prepare(sql).all());
}

type Row = Readonly<Record<string, unknown>>;

/** The same for whatever can be asked in SQL. */
export function storedSessionsOf(look: (sql: string) => readonly Row[]): StoredSessions {
  const chunks = look(
    'SELECT sessions.session_id AS session, first_seq, updates FROM session_updates JOIN sessions ON sessions.key = session_key ORDER BY session_key, first_seq',
  );
  const turns = look(
    'SELECT turns.id, sessions.session_id AS session, prompt, status FROM turns JOIN sessions ON sessions.key = session_key',
  );
  return {
    updates: chunks.flatMap(({ session, first_seq: first, updates }) =>
      String(updates)
        .split('\n')
        .map((line, index) => readUpdate(String(session), Number(first) + index, JSON.parse(wireText(line)))),
    ),
    turns: turns.map(({ id, session, prompt, status }) => ({
      id: String(id),
      session: String(session),
      prompt: JSON.parse(String(prompt)),
      status: String(status),
    })),
  };
}

/** An update as it was sent or stored; both say the same in the same order. */
export function readUpdate(session: string, seq: number, update: { turnId?: string; event?: string }): Update {
  const { turnId = '', event = '' } = update;
  return { session, seq, turnId, event, text: JSON.stringify(update) };
}
