import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';

const [RUNNER, MAIN] = ['scripts/run.cjs', 'src/main.ts'].map((file) => join(import.meta.dirname, '../..', file));
const server = await startProgram({ after });
const folder = await temporaryFolder({ after });
const data = ['--data-dir', server.dataDirectory];
const FULL = { skip: process.platform !== 'linux' && 'needs /dev/full' };

test(
  'output that a full disk does not take is a failure, and a closed pipe ends a command without a stack',
  FULL,
  async () => {
    const shell = async (line: string) => {
      const script = `trestle() { "${process.execPath}" "${RUNNER}" "${MAIN}" "$@"; }\n${line}`;
      const { code, stderr } = await runProgram([], { starter: ['bash', '-c', script], workingDirectory: folder });
      return { code, stderr };
    };
    const where = data.map((word) => `"${word}"`).join(' ');
    const lost = {
      code: 1,
      stderr: 'trestle: the output could not be written: ENOSPC: no space left on device, write\n',
    };
    assert.deepEqual(await shell('trestle --help > /dev/full'), lost);
    assert.deepEqual(await shell(`trestle run ${where} Hello > /dev/full`), lost);
    const cut = `trestle run ${where} --model 'demo/echo?delay=300' a b c d e f g h | head -c1 > /dev/null; exit \${PIPESTATUS[0]}`;
    assert.deepEqual(await shell(cut), { code: 141, stderr: '' });
  },
);
