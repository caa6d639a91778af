import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../running-program.ts';
import { asMain, FORWARD_TOKEN } from './start-nodes.ts';

export interface NodeProcessOptions {
  readonly id: string;
  /** Endpoints of other nodes by id, with what else is said of them. */
  readonly peers?: Readonly<Record<string, { readonly url: string; readonly more?: string }>>;
  /** YAML of `distributed.forwarding`. */
  readonly forwarding?: string;
  /** YAML of `agents`; the built-in agent alone unless given. */
  readonly agents?: string;
  /** The folder of one that ran before. */
  readonly dataDirectory?: string;
}

/** Starts a bridge of a group as a user does, in a process of its own. */
export async function startNodeProcess(scope: Scope, options: NodeProcessOptions): Promise<RunningProgram> {
  const { id, peers = {}, forwarding = '{}', agents = '{ catalog: [builtin] }' } = options;
  const dataDirectory = options.dataDirectory ?? (await temporaryFolder(scope));
  const config = join(dataDirectory, 'trestle.yaml');
  const nodes = Object.entries(peers).map(
    ([peer, { url, more }]) =>
      `    - { id: ${peer}, bridge_endpoint: "${url}"${more === undefined ? '' : `, ${more}`} }\n`,
  );
  const text = [
    `bridge: { auth_token: "${asMain.authorization.slice('Bearer '.length)}" }\n`,
    `agents: ${agents}\n`,
    `distributed:\n  local_node_id: ${id}\n  task_forward_token: "${FORWARD_TOKEN}"\n`,
    nodes.length === 0 ? '' : `  nodes:\n${nodes.join('')}`,
    `  forwarding: ${forwarding}\n`,
  ].join('');
  await writeFile(config, text, { mode: 0o600 });
  return startProgram(scope, { dataDirectory, args: ['--config', config, 'bridge'] });
}

export interface StoredTurn {
  readonly session: string;
  readonly method: string;
  readonly prompt: string;
}

/** The turns that a node has in its database, whether it still runs or not. */
export function storedTurns({ dataDirectory }: RunningProgram): readonly StoredTurn[] {
  const database = new DatabaseSync(join(dataDirectory, 'bridge.db'), { readOnly: true });
  try {
    const rows = database
      .prepare(
        'select s.session_id as session, t.method, t.prompt from turns t join sessions s on s.key = t.session_key',
      )
      .all();
    return rows.map(({ session, method, prompt }) => ({
      session: String(session),
      method: String(method),
      prompt: JSON.parse(String(prompt)) as string,
    }));
  } finally {
    database.close();
  }
}
