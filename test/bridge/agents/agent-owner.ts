// A stand-in for the bridge: runs a turn of the scripted agent that never ends, and says which process works on it.
//   node agent-owner.ts FOLDER [options of the agent]
import { startScripted } from './scripted-agent.ts';

const [folder = '', ...flags] = process.argv.slice(2);
const agent = await startScripted({ after: () => undefined }, { folder, flags });
const turn = agent.run({ prompt: 'child', folder: agent.work });
await turn.until((event) => event.kind === 'text');
process.stdout.write(`${JSON.stringify(agent.started[0])}\n`);
await turn.end;
