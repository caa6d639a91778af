import { WebSocket } from 'ws';
import type { Probe, ProbeResult } from '../agents/probe-board.ts';

/** A gateway is there when it greets with its challenge; no credential is sent for that. */
export function createGatewayProbe(url: string): Probe {
  if (url === '') return () => Promise.resolve({ status: 'not_configured', version: '' });
  return (signal) => {
    const { promise, resolve, reject } = Promise.withResolvers<ProbeResult>();
    const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 64 * 1024, followRedirects: false });
    const stop = (): void => reject(new Error('timed out'));
    signal.addEventListener('abort', stop, { once: true });
    socket.on('error', (error) => reject(new Error(`cannot connect (${'code' in error ? error.code : 'refused'})`)));
    socket.on('close', () => reject(new Error('closed without a greeting')));
    socket.on('message', (data) => {
      if (isChallenge(String(data))) resolve({ status: 'ok', version: '' });
      else reject(new Error('not a gateway'));
    });
    return promise.finally(() => {
      signal.removeEventListener('abort', stop);
      socket.terminate();
    });
  };
}

function isChallenge(text: string): boolean {
  try {
    const frame: unknown = JSON.parse(text);
    return typeof frame === 'object' && frame !== null && 'event' in frame && frame.event === 'connect.challenge';
  } catch {
    return false;
  }
}
