import { type Static, Type } from 'typebox';
import { OwnerQuery } from './workbench.ts';

/** Files and folders: changes of turns in the working directory of a session, undo, and lists of folders. */

const turnId = Type.Optional(
  Type.String({ maxLength: 64, description: 'Since this turn began. Absent: since the session began.' }),
);
const path = Type.String({ minLength: 1, maxLength: 4096, description: 'From the working directory of the session.' });

export const ChangesQuery = Type.Object({ ...OwnerQuery.properties, turnId });
export const ChangesPage = Type.Object({
  files: Type.Array(
    Type.Object({
      path: Type.String(),
      status: Type.Enum(['added', 'modified', 'deleted']),
      added: Type.Integer({ description: 'Lines.' }),
      removed: Type.Integer({ description: 'Lines.' }),
      binary: Type.Boolean(),
    }),
    { description: 'At most 10,000, by path.' },
  ),
  base: Type.Object({
    source: Type.Enum(['checkpoint', 'updates'], {
      description:
        '`checkpoint`: the folder was saved. `updates`: what the agent has reported, which cannot be undone.',
    }),
    turnId: Type.String({ description: 'The first turn whose changes are shown; empty when there is none.' }),
  }),
});
export const DiffQuery = Type.Object({ ...OwnerQuery.properties, turnId, path });
export const DiffView = Type.Object({
  path: Type.String(),
  unified: Type.String({ description: 'A unified diff, at most 1 MiB; empty for binary files.' }),
  truncated: Type.Boolean(),
});
export const UndoRequest = Type.Object({ turnId: Type.String({ maxLength: 64 }) }, { additionalProperties: false });
export const UndoResult = Type.Object({
  turnId: Type.String(),
  restored: Type.Array(Type.String(), {
    description: 'Paths that were restored to their state before the turn.',
  }),
  files: Type.Array(
    Type.Object({
      path: Type.String(),
      action: Type.Enum(['restored', 'removed', 'created'], {
        description:
          '`restored`: the content from before the turn is back. `removed`: the turn had added the file. `created`: the turn had deleted it.',
      }),
    }),
    { description: 'What was done to each of these paths.' },
  ),
});

export const MergeRequest = Type.Object(
  {
    step: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 63,
        description: 'Of a `parallel` or `race` run: the step to merge. Default: the winner of a race.',
      }),
    ),
  },
  { additionalProperties: false },
);
export const MergeResult = Type.Object({
  branch: Type.String({
    description: 'The branch that is checked out in the repository, to which the changes were applied.',
  }),
  commit: Type.String({ description: 'The new commit of that branch.' }),
  files: Type.Array(Type.String(), { description: 'The files that have changed in the checkout, at most 1,000.' }),
});

export const FolderQuery = Type.Object({
  path: Type.Optional(Type.String({ maxLength: 4096, description: 'An absolute path. Absent: only the roots.' })),
});

const GitState = Type.Object({
  branch: Type.String({ description: 'Empty for a commit without a branch.' }),
  dirty: Type.Optional(
    Type.Boolean({
      description:
        'True: files that git tracks differ from the last commit. Absent if that could not be determined within a second.',
    }),
  ),
});

export const FolderPage = Type.Object({
  roots: Type.Array(Type.String(), { description: 'The folders in which agents may work.' }),
  git: Type.Optional({ ...GitState, description: 'Of `path` itself. Absent if it is not a repository.' }),
  entries: Type.Array(Type.Object({ name: Type.String(), path: Type.String(), git: Type.Optional(GitState) }), {
    description: 'The folders in `path`, at most 500, without hidden ones.',
  }),
  truncated: Type.Boolean({ description: 'True: there are more than 500.' }),
});

export const FileQuery = Type.Object({
  ...OwnerQuery.properties,
  path,
});

export const FileView = Type.Object({
  path: Type.String(),
  sizeBytes: Type.Integer(),
  encoding: Type.Enum(['utf8', 'base64']),
  content: Type.String({ description: 'At most 1 MiB of the file.' }),
  truncated: Type.Boolean(),
});

export type ChangesPage = Static<typeof ChangesPage>;
export type DiffView = Static<typeof DiffView>;
export type UndoResult = Static<typeof UndoResult>;
export type MergeResult = Static<typeof MergeResult>;
export type FolderPage = Static<typeof FolderPage>;
export type FileView = Static<typeof FileView>;
