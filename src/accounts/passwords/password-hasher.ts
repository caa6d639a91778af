import { AppError } from '../../platform/errors/app-error.ts';

/** Argon2id, off the event loop (contract/accounts, Rules: Passwords). */
export interface PasswordHasher {
  hash(password: string): Promise<string>;
  /** Whether it is the password. With no hash to compare with the same work is done, and the answer is no. */
  verify(hash: string | null, password: string): Promise<boolean>;
  /** Whether a hash was made with other parameters than new ones are. */
  isOutdated(hash: string): boolean;
}

export interface HashParameters {
  /** In KiB. */
  readonly memoryCost: number;
  readonly timeCost: number;
  readonly parallelism: number;
}

export interface PasswordHasherOptions {
  readonly parameters?: HashParameters;
  /** How many are computed at the same time. */
  readonly concurrency: number;
  /** How many more may wait; one more is refused with OVERLOADED. */
  readonly waiting?: number;
}

const PARAMETERS: HashParameters = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };
const WAITING = 1000;
export function createPasswordHasher(options: PasswordHasherOptions): PasswordHasher {
  const { parameters = PARAMETERS, concurrency, waiting = WAITING } = options;
  const limited = createLimit(concurrency, waiting);
  const prefix = `$argon2id$v=19$m=${parameters.memoryCost},t=${parameters.timeCost},p=${parameters.parallelism}$`;
  // What an unknown user is compared with: as much work as any other hash, and no password has it.
  const nobody = `${prefix}${'A'.repeat(22)}$${'A'.repeat(43)}`;

  return {
    hash: (password) => limited(async () => (await import('@node-rs/argon2')).hash(password, parameters)),
    async verify(stored, password) {
      const matches = await limited(async () => (await import('@node-rs/argon2')).verify(stored ?? nobody, password));
      return matches && stored !== null;
    },
    isOutdated: (stored) => !stored.startsWith(prefix),
  };
}

/** Lets so many tasks run at the same time, in the order they came. */
function createLimit(concurrency: number, waiting: number) {
  const line: (() => void)[] = [];
  let running = 0;
  return async <Result>(task: () => Promise<Result>): Promise<Result> => {
    if (running >= concurrency) {
      if (line.length >= waiting) throw new AppError('OVERLOADED');
      await new Promise<void>((resolve) => line.push(resolve));
    } else {
      running += 1;
    }
    try {
      return await task();
    } finally {
      // The place goes straight to the next in line: no task that comes until then can take it.
      const next = line.shift();
      if (next === undefined) running -= 1;
      else next();
    }
  };
}
