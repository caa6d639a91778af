/** A stop of the tour: a moment of the whole story, with its picture. */
export interface TourStop {
  readonly moment: string;
  readonly title: string;
  readonly text: string;
  /** What the picture shows, for those who do not see it. */
  readonly picture: string;
  /** A text that is there when the screen is complete. */
  readonly shown?: string | RegExp;
}

export const TOUR: readonly TourStop[] = [
  {
    moment: 'set-up',
    title: 'Set-up',
    text: 'Three instances run on one PostgreSQL. The first start prints a link that works once: it creates the first administrator, who invites Ann and Ben. Each of them has a plan: models, a budget, agents.',
    picture: 'The set-up page: name, e-mail address and password of the first administrator',
  },
  {
    moment: 'asked',
    title: 'Asked in the console',
    text: '`trestle agents install` has installed the agents. Ann lets Claude work in her folder. Claude asks before it runs a command, and nothing happens until she answers.',
    picture: 'A session in the console: Claude asks before it runs a command, with buttons to allow and to deny',
  },
  {
    moment: 'terminal',
    title: 'Asked in the terminal',
    text: 'Ben works in a terminal, after `trestle login`. Codex asks there, and one key answers.',
    picture: 'A terminal: trestle run with Codex, which asks before it runs a command, and the keys for the answer',
  },
  {
    moment: 'diff-console',
    title: 'Diff and undo',
    text: 'The console shows the changes of a turn as a diff, for every agent and tool. “Undo this turn” restores the files; the story does this and checks it.',
    picture: 'The session of Ann: the turn is completed, and the pane beside it shows the new file as a diff',
    shown: /By the agent of Ann/,
  },
  {
    moment: 'schedules',
    title: 'Every morning',
    text: 'A schedule submits a task as a job at set times, or now.',
    picture: 'The schedules of Ben: one that runs on weekdays at eight',
    shown: 'what is new',
  },
  {
    moment: 'race',
    title: 'A race in worktrees',
    text: 'Codex and the built-in agent work on the same task, each in its own worktree. The first to complete wins, the other one is stopped, and the work of the winner is merged.',
    picture: 'A run in the console: two agents in a race, one has won and the other one was stopped',
    shown: /codex/i,
  },
  {
    moment: 'budget',
    title: 'A budget is reached',
    text: 'All model calls of all agents go through our own `/v1` and count for their owners. When Ann has spent her budget, her calls and her agents are refused, and Ben can continue. The last call cost more than estimated, so she ends a few cents above the budget.',
    picture: 'The usage of Ann in the console, with everything that she has spent',
    shown: /story/,
  },
  {
    moment: 'resumed',
    title: 'kill -9 of one of three instances',
    text: 'An instance is killed in the middle of a turn. A user who watches the session on another instance sees the turn end as interrupted, and the session continues there with the whole conversation. No update is lost or repeated.',
    picture: 'The session of Ben: the first turn was interrupted, and the second one is completed',
    shown: 'I know of 2 prompts.',
  },
  {
    moment: 'usage',
    title: 'To the cent',
    text: 'At the end, the usage of both users equals what the model API has counted, to the cent.',
    picture: 'The usage of all users in the console, as the administrator sees it',
    shown: 'Ann',
  },
];

/** The text of `docs/tour.md`. */
export function tourPage(): string {
  const stops = TOUR.map(
    ({ moment, title, text, picture }, index) =>
      `## ${index + 1}. ${title}\n\n${text}\n\n![${picture}](images/tour-${moment}.png)\n`,
  );
  return `# A tour in pictures

The whole story, as [\`examples/whole-story.ts\`](../examples/whole-story.ts) tells it: with Claude and Codex, a browser, a terminal, PostgreSQL and the story's own model API.
\`test/agents/tour.test.ts\` runs all of it and checks each step; \`npm run test:console -- record-tour.ts docs\` writes this page and its pictures.

${stops.join('\n')}
Next: [the console](console.md), [agents](agents.md), [several machines](several-machines.md), [keys and usage](keys-and-usage.md).
`;
}
