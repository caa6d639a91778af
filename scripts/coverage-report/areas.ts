/** A part of the sources. The first row that fits a path decides. */
export interface Area {
  readonly name: string;
  readonly path: RegExp;
  /** The core must meet the goals; the rest is shown. */
  readonly isCore: boolean;
  readonly because: string;
}

/** In percent: of the lines with code, and of the branches as V8 counts them. */
export const GOALS = { lines: 95, branches: 90 };

export const AREAS: readonly Area[] = [
  {
    name: 'pages',
    path: /\/browser\//,
    isCore: false,
    because: 'they run in a browser, and `npm run test:console` in a real one is not counted',
  },
  {
    name: 'services and platform',
    path: /^src\/(bridge|completions|accounts|platform)\//,
    isCore: true,
    because: 'they decide what callers get and may; what only wires them is small, and the same tests run it',
  },
  {
    name: 'client',
    path: /^src\/client\//,
    isCore: false,
    because: 'it runs in apps, and guards nothing',
  },
  {
    name: 'system and commands',
    path: /^src\//,
    isCore: false,
    because: 'they start the services and talk to the terminal: `npm run test:e2e` starts them as users do',
  },
];

export function areaOf(path: string): Area | undefined {
  return AREAS.find((area) => area.path.test(path));
}
