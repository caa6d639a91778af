import { join } from 'node:path';
import { agentsRoot } from '../agents/agents-root.ts';

/** The real gateway that the tests run against. About 650 MB; it needs the Node.js that this project pins. */
export const gatewayPackage = { name: 'openclaw', version: '2026.9.6' } as const;

/** Where it is installed: beside the agents, outside the project. */
export function gatewayFolder(environment: Readonly<Record<string, string | undefined>>): string {
  return join(agentsRoot(environment), `${gatewayPackage.name}-${gatewayPackage.version}`);
}

export function gatewayProgram(folder: string): string {
  return join(folder, 'node_modules', gatewayPackage.name, 'openclaw.mjs');
}
