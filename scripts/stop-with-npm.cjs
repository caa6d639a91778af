// `npm start` runs a shell that runs Node. Whoever stops npm (a supervisor, `kill`) stops neither the shell nor Node in
// every version of npm, and the server would go on without a parent and keep its port. So a program that npm started
// watches npm, and drains when npm is gone.
'use strict';

const fs = require('node:fs');

const INTERVAL_MS = 500;

/** The process ids between this process and npm, both included. Only Linux tells the parent of a parent. */
function ancestors() {
  const found = [process.ppid];
  const parent = parentOf(process.ppid);
  if (parent !== undefined && parent > 1) found.push(parent);
  return found;
}

function parentOf(pid) {
  try {
    // `123 (name) S 122 ...`: the name may contain anything, so it is cut off at the last bracket.
    const text = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    return Number(text.slice(text.lastIndexOf(')') + 1).split(' ')[2]);
  } catch {
    return undefined;
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

/** Sends SIGTERM to this process, once, when npm or the shell that it started this process with has ended. */
function stopWithNpm() {
  if (process.env.npm_lifecycle_event === undefined) return;
  const watched = ancestors();
  const timer = setInterval(() => {
    if (process.ppid === watched[0] && watched.every(isAlive)) return;
    clearInterval(timer);
    process.kill(process.pid, 'SIGTERM');
  }, INTERVAL_MS);
  timer.unref();
}

module.exports = { stopWithNpm };
