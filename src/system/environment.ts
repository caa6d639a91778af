import { readFileSync } from 'node:fs';
import type { Environment } from '../platform/runtime/runtime.ts';

/** Reads the environment of the process. No other file does; the values are passed on as parameters. */
export function readEnvironment(): Environment {
  return Object.freeze({ ...process.env });
}

/** Version of the contract that this release serves: `/api/ping`, `/openapi.json`. */
export const CONTRACT_VERSION = '1.0.0';

/** The version in package.json, which lies as far above `src/system` as above `dist/system`. */
export const PROGRAM_VERSION: string = readVersion();

/** How this copy was built, from its builder's variables; empty strings where they are not set. */
export interface BuildFacts {
  readonly commit: string;
  readonly buildDate: string;
  readonly image: string;
  readonly tag: string;
}

export function readBuildFacts(environment: Environment): BuildFacts {
  return {
    commit: environment.TRESTLE_BUILD_COMMIT ?? '',
    buildDate: environment.TRESTLE_BUILD_DATE ?? '',
    image: environment.TRESTLE_BUILD_IMAGE ?? '',
    tag: environment.TRESTLE_BUILD_TAG ?? '',
  };
}

function readVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { version: string };
  return version;
}
