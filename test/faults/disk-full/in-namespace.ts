// Run by the suite in a mount namespace of its own: `node in-namespace.ts CYCLES SEED`.
import { fillCycles } from './fill-cycles.ts';

const [cycles, seed] = process.argv.slice(2).map(Number) as [number, number];
const report = await fillCycles({ cycles, seed, say: (line) => process.stdout.write(`${line}\n`) });
process.stdout.write(`${JSON.stringify(report)}\n`);
