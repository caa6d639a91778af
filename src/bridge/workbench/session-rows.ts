import { Readable } from 'node:stream';
import { Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import { defineRoute, type Guard } from '../../platform/http/surface.ts';
import { may } from '../../platform/identity/principal.ts';
import type { BridgeCaller } from '../access.ts';
import * as files from '../contract/files.ts';
import * as contract from '../contract/workbench.ts';
import { workingFor } from '../principal.ts';
import type { Conversations } from '../sessions/conversations.ts';
import type { SessionRow } from '../storage/bridge-schema.ts';
import type { FileChanges } from './file-changes.ts';
import type { ReadFile } from './folders.ts';
import type { History } from './history.ts';
import type { SessionList } from './session-list.ts';

export interface SessionParts {
  readonly sessions: SessionList;
  readonly history: History;
  readonly fileChanges: FileChanges;
  readonly readFile: ReadFile;
  readonly conversations: Conversations;
  /** Merges the worktree of a session, or of one step of its run. */
  merge(
    session: Pick<SessionRow, 'key' | 'owner' | 'session_id'>,
    step: number | undefined,
  ): Promise<files.MergeResult>;
}

/** Of bodies that name what to change. */
const MAX_CHANGES_BYTES = 16 * 1024;
const MAX_STEER_BYTES = 256 * 1024;

/** The rows about sessions: `/api/bridge/sessions`. */
export function sessionRows(guard: Guard<BridgeCaller>, parts: SessionParts) {
  const { sessions, history, fileChanges, readFile, conversations } = parts;

  /** The session that is meant, if the caller may work in it. */
  async function ownWork({ principal }: BridgeCaller, sessionId: string, owner: string | undefined) {
    const session = await sessions.find(principal, sessionId, owner);
    if (!may(principal, 'message', session.owner)) throw new AppError('FORBIDDEN');
    return session;
  }

  return [
    defineRoute(
      'GET /api/bridge/sessions',
      guard,
      {
        summary: 'Sessions, newest first, and how many there are in each state.',
        query: contract.SessionQuery,
        response: { 200: contract.SessionPage },
      },
      ({ caller, query }) => sessions.list(caller.principal, query),
    ),
    defineRoute(
      'GET /api/bridge/sessions/:sessionId',
      guard,
      {
        summary: 'One session, and the turns that wait in it.',
        query: contract.OwnerQuery,
        response: { 200: contract.SessionView },
      },
      ({ caller, params, query }) => sessions.show(caller.principal, params.sessionId, query.owner),
    ),
    defineRoute(
      'PATCH /api/bridge/sessions/:sessionId',
      guard,
      {
        summary:
          'Changes the title of a session, archives or pins it, or sets the mode, model and thinking level of its next turns.',
        query: contract.OwnerQuery,
        body: contract.SessionChanges,
        bodyLimit: MAX_CHANGES_BYTES,
        response: { 200: contract.SessionOnly },
      },
      async ({ caller, params, query, body }) => {
        const { mode, model, thinking, ...changes } = body;
        const chosen = {
          ...(mode !== undefined && { mode }),
          ...(model !== undefined && { model }),
          ...(thinking !== undefined && { thinking }),
        };
        if (Object.keys(chosen).length > 0) {
          await conversations.choose(await ownWork(caller, params.sessionId, query.owner), chosen);
        }
        return sessions.change(caller.principal, params.sessionId, query.owner, changes);
      },
    ),
    defineRoute(
      'GET /api/bridge/sessions/:sessionId/turns',
      guard,
      {
        summary: 'The turns of a session, newest first.',
        query: contract.TurnQuery,
        response: { 200: contract.TurnPage },
      },
      async ({ caller, params, query }) => {
        const { key } = await sessions.find(caller.principal, params.sessionId, query.owner);
        return history.turns(key, query.before, query.limit);
      },
    ),
    defineRoute(
      'DELETE /api/bridge/sessions/:sessionId/turns/:turnId',
      guard,
      {
        summary: 'Removes a waiting turn. It ends as cancelled; the turns before and after it continue.',
        query: contract.OwnerQuery,
        response: { 200: contract.LiveAccepted },
      },
      async ({ caller, params, query }) => {
        const session = await sessions.find(caller.principal, params.sessionId, query.owner);
        if (!may(caller.principal, 'cancel', session.owner)) throw new AppError('FORBIDDEN');
        await conversations.withdraw(session, params.turnId);
        return { accepted: true };
      },
    ),
    defineRoute(
      'GET /api/bridge/sessions/:sessionId/updates',
      guard,
      {
        summary:
          'The updates of a session in order, without repeated members; the latest ones unless a number is given.',
        query: contract.UpdateQuery,
        response: { 200: contract.UpdatePage },
      },
      async ({ caller, params, query }) => {
        const { key } = await sessions.find(caller.principal, params.sessionId, query.owner);
        return history.updates(key, query);
      },
    ),
    defineRoute(
      'GET /api/bridge/sessions/:sessionId/export',
      guard,
      {
        summary: 'The whole session as Markdown or JSON; with `cursor` one page of it.',
        query: contract.ExportQuery,
        response: { 200: Type.Unknown({ description: 'text/markdown, or JSON with session, turns and updates.' }) },
      },
      async ({ caller, params, query, reply }) => {
        const { owner, form = 'markdown', cursor } = query;
        const { key } = await sessions.find(caller.principal, params.sessionId, owner);
        const { session } = await sessions.show(caller.principal, params.sessionId, owner);
        const type = form === 'json' ? 'application/json' : 'text/markdown';
        reply.header('content-type', `${type}; charset=utf-8`);
        if (cursor !== undefined) {
          const { text, nextCursor } = await history.exportedPage(key, session, form, cursor);
          if (nextCursor !== null) reply.header('x-next-cursor', nextCursor);
          return reply.send(text);
        }
        reply.header('content-disposition', `attachment; filename="session.${form === 'json' ? 'json' : 'md'}"`);
        const exported = Readable.from(history.exported(key, session, form), { objectMode: false });
        const forget = caller.principal.credential?.onEnd(() => exported.destroy());
        if (forget !== undefined) exported.once('close', forget);
        return reply.send(exported);
      },
    ),
    defineRoute(
      'GET /api/bridge/sessions/:sessionId/files',
      guard,
      {
        summary: 'Reads a file in the working directory of a session.',
        query: files.FileQuery,
        response: { 200: files.FileView },
      },
      async ({ caller, params, query }) =>
        readFile(await sessions.find(caller.principal, params.sessionId, query.owner), query.path),
    ),
    defineRoute(
      'GET /api/bridge/sessions/:sessionId/changes',
      guard,
      {
        summary: 'Files that the turns of a session have changed in its working directory.',
        query: files.ChangesQuery,
        response: { 200: files.ChangesPage },
      },
      async ({ caller, params, query }) =>
        fileChanges.list(await sessions.find(caller.principal, params.sessionId, query.owner), query.turnId),
    ),
    defineRoute(
      'GET /api/bridge/sessions/:sessionId/changes/diff',
      guard,
      {
        summary: 'What the turns of a session have changed in one file, as a unified diff.',
        query: files.DiffQuery,
        response: { 200: files.DiffView },
      },
      async ({ caller, params, query }) =>
        fileChanges.diff(
          await sessions.find(caller.principal, params.sessionId, query.owner),
          query.turnId,
          query.path,
        ),
    ),
    defineRoute(
      'POST /api/bridge/sessions/:sessionId/undo',
      guard,
      {
        summary: 'Restores the files that a turn has changed to their state before the turn.',
        query: contract.OwnerQuery,
        body: files.UndoRequest,
        bodyLimit: MAX_CHANGES_BYTES,
        response: { 200: files.UndoResult },
      },
      async ({ caller, params, query, body }) => {
        const session = await sessions.find(caller.principal, params.sessionId, query.owner);
        if (!may(caller.principal, 'undo', session.owner)) throw new AppError('FORBIDDEN');
        return fileChanges.undo(session, body.turnId);
      },
    ),
    defineRoute(
      'POST /api/bridge/sessions/:sessionId/merge',
      guard,
      {
        summary:
          'Merges the worktree of a session into the branch that is checked out in its repository. For a run, merges one step and removes the worktrees of the others.',
        query: contract.OwnerQuery,
        body: files.MergeRequest,
        bodyLimit: MAX_CHANGES_BYTES,
        response: { 200: files.MergeResult },
      },
      async ({ caller, params, query, body }) =>
        parts.merge(await ownWork(caller, params.sessionId, query.owner), body.step),
    ),
    defineRoute(
      'POST /api/bridge/sessions/:sessionId/steer',
      guard,
      {
        summary: 'Sends a message to the running turn of a session.',
        query: contract.OwnerQuery,
        body: contract.SteerRequest,
        bodyLimit: MAX_STEER_BYTES,
        response: { 200: contract.SteerResult },
      },
      async ({ caller, params, query, body }) =>
        conversations.steer(await ownWork(caller, params.sessionId, query.owner), body.text),
    ),
    defineRoute(
      'POST /api/bridge/sessions/:sessionId/fork',
      guard,
      {
        summary: 'Copies a session with its conversation, whole or up to a turn, so that both can be continued.',
        query: contract.OwnerQuery,
        body: contract.ForkRequest,
        bodyLimit: MAX_CHANGES_BYTES,
        response: { 201: contract.ForkResult },
      },
      async ({ caller, params, query, body }) => {
        const session = await ownWork(caller, params.sessionId, query.owner);
        return conversations.fork(session, body.turnId, workingFor(caller.principal, session.owner).member?.id);
      },
    ),
  ];
}
