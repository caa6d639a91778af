import type { Database } from '../../platform/database/database.ts';
import type { BridgeSchema, BuiltinMessageRow } from './bridge-schema.ts';

export interface KeptConversation {
  /** The latest messages, oldest first: as many as fit the limit. */
  readonly bodies: readonly string[];
  readonly nextPosition: number;
}

/** The turn in which messages were said, and when. */
export interface MessagesOf {
  readonly turnId: string;
  readonly now: number;
}

/** Keeps conversations as lists that only grow, one row for each message. */
export interface BuiltinConversationStore {
  append(conversationId: string, position: number, bodies: readonly string[], of: MessagesOf): Promise<void>;
  /** Copies a conversation, up to the end of that turn if one is given. False when there is no such conversation or turn. */
  copy(conversationId: string, copyId: string, turnId: string | undefined): Promise<boolean>;
  /** Undefined when there is none. What is older than the limit allows is deleted. */
  read(conversationId: string): Promise<KeptConversation | undefined>;
  /** Whether there is such a conversation. */
  has(conversationId: string): Promise<boolean>;
  remove(conversationId: string): Promise<void>;
}

const PAGE = 64;
/** More than any model takes in; what is older has no use any more. */
const MAX_CHARACTERS = 4 * 1024 * 1024;
const MAX_MESSAGES = 4096;

export function createBuiltinConversationStore(database: Database<BridgeSchema>): BuiltinConversationStore {
  const insert = database.statement((query, given: BuiltinMessageRow) =>
    query.insertInto('builtin_messages').values({ ...given }),
  );
  const pageBefore = database.statement((query, given: { conversationId: string; before: number }) =>
    query
      .selectFrom('builtin_messages')
      .select(['position', 'body'])
      .where('conversation_id', '=', given.conversationId)
      .where('position', '<', given.before)
      .orderBy('position', 'desc')
      .limit(PAGE),
  );
  const anyOf = database.statement((query, given: { conversationId: string }) =>
    query
      .selectFrom('builtin_messages')
      .select('position')
      .where('conversation_id', '=', given.conversationId)
      .limit(1),
  );
  const removeBefore = database.statement((query, given: { conversationId: string; before: number }) =>
    query
      .deleteFrom('builtin_messages')
      .where('conversation_id', '=', given.conversationId)
      .where('position', '<', given.before),
  );

  return {
    async append(conversation_id, position, bodies, { turnId: turn_id, now: created_at }) {
      const rows = bodies.map((body, index) =>
        insert({ conversation_id, position: position + index, body, turn_id, created_at }),
      );
      await database.write(rows);
    },
    async read(conversationId) {
      const newestFirst: { readonly position: number; readonly body: string }[] = [];
      let characters = 0;
      for (let before = Number.MAX_SAFE_INTEGER; ; ) {
        const page = await database.read(pageBefore({ conversationId, before }));
        for (const row of page) {
          characters += row.body.length;
          const isFull = characters > MAX_CHARACTERS || newestFirst.length >= MAX_MESSAGES;
          if (isFull && newestFirst.length > 0) {
            await database.write([removeBefore({ conversationId, before: row.position + 1 })]);
            return toKept(newestFirst);
          }
          newestFirst.push(row);
          before = row.position;
        }
        if (page.length < PAGE) return toKept(newestFirst);
      }
    },
    async copy(conversationId, copyId, turnId) {
      const { query } = database;
      let last = query
        .selectFrom('builtin_messages')
        .select(({ fn }) => fn.max('position').as('position'))
        .where('conversation_id', '=', conversationId);
      if (turnId !== undefined) last = last.where('turn_id', '=', turnId);
      const position = (await database.read(last.compile()))[0]?.position ?? null;
      if (position === null) return false;
      const copied = query
        .selectFrom('builtin_messages')
        .select((row) => [row.val(copyId).as('conversation_id'), 'position', 'body', 'turn_id', 'created_at'])
        .where('conversation_id', '=', conversationId)
        .where('position', '<=', position);
      const columns = ['conversation_id', 'position', 'body', 'turn_id', 'created_at'] as const;
      await database.write([query.insertInto('builtin_messages').columns(columns).expression(copied).compile()]);
      return true;
    },
    has: async (conversationId) => (await database.read(anyOf({ conversationId }))).length > 0,
    async remove(conversationId) {
      await database.write([removeBefore({ conversationId, before: Number.MAX_SAFE_INTEGER })]);
    },
  };
}

function toKept(newestFirst: readonly { position: number; body: string }[]): KeptConversation | undefined {
  const [newest] = newestFirst;
  if (newest === undefined) return undefined;
  return { bodies: newestFirst.map(({ body }) => body).reverse(), nextPosition: newest.position + 1 };
}
