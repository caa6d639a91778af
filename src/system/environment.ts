/** The only place that reads the process's environment: everything else is handed what it needs. */
export function readEnvironment(): Readonly<Record<string, string | undefined>> {
  return Object.freeze({ ...process.env });
}
