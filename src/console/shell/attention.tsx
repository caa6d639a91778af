import { useEffect, useState, useSyncExternalStore } from 'react';
import { useLocation } from 'wouter';
import type { Live } from '../../client/trestle-client.ts';
import { readPerson } from '../data/accounts.ts';
import { sessionAddress } from '../data/bridge.ts';
import { Moment } from '../parts/parts.tsx';
import { visible } from '../parts/text.ts';
import { useConsole } from './console-context.ts';

const KEY = 'trestle.notify';
const isOffered = typeof Notification === 'function';

interface Attention {
  /** Whether the browser can notify, and has not refused to. */
  readonly isOffered: boolean;
  readonly isOn: boolean;
  /** Switches it on, which the browser asks about, or off. */
  toggle(): Promise<void>;
}

/** Notifies about questions of agents while the page is hidden, where the person has switched it on in this browser. */
export function useAttention(live: Live | undefined, own: string): Attention {
  const [, go] = useLocation();
  const [isOn, setOn] = useState(
    isOffered && Notification.permission === 'granted' && localStorage.getItem(KEY) === 'yes',
  );
  const [isRefused, setRefused] = useState(isOffered && Notification.permission === 'denied');
  useEffect(() => {
    if (!isOn) return;
    return live?.watch(['permissions'], (change) => {
      const item = change?.topic === 'permissions' ? change.item : null;
      if (item === null || item.state !== 'open' || !document.hidden) return;
      // The same tag: a question is shown once, however many pages are open.
      const notification = new Notification('An agent asks', { body: visible(item.title), tag: item.permissionId });
      notification.onclick = () => {
        window.focus();
        notification.close();
        go(sessionAddress(item, own));
      };
    });
  }, [isOn, live, own, go]);
  return {
    isOffered: isOffered && live !== undefined && !isRefused,
    isOn,
    async toggle() {
      const granted = isOn ? 'default' : await Notification.requestPermission();
      localStorage.setItem(KEY, granted === 'granted' ? 'yes' : 'no');
      setOn(granted === 'granted');
      setRefused(granted === 'denied');
    },
  };
}

/** The server sends something every ten seconds. */
const SILENT_MS = 20_000;
const SILENT_CHECK_MS = 2000;

/** How long a connection may be lost before the page says so. */
const LATE_MS = 1500;
/** How often it is asked whether the login has ended, while there is no connection. */
const ASK_MS = 10_000;

const NEVER = () => () => undefined;

/** Says when the server cannot be reached, and since when. */
export function ConnectionNotice() {
  const { live, system } = useConsole();
  const status = useSyncExternalStore(live?.onStatus ?? NEVER, () => live?.status());
  const [isLate, setLate] = useState(false);
  const [isSilent, setSilent] = useState(false);
  const isLost = status !== undefined && !status.isOpen;
  useEffect(() => {
    // Messages do not change the status, so that a stream does not draw the page again.
    const timer = setInterval(() => {
      const now = live?.status();
      setSilent(now?.isOpen === true && Date.now() - now.heardAt > SILENT_MS);
    }, SILENT_CHECK_MS);
    return () => clearInterval(timer);
  }, [live]);
  useEffect(() => {
    if (!isLost) {
      setLate(false);
      return;
    }
    // A connection that comes back within a second is not worth a word.
    const timer = setTimeout(() => setLate(true), LATE_MS);
    return () => clearTimeout(timer);
  }, [isLost]);
  const needsLogin = system.signIn === 'session';
  useEffect(() => {
    if (!isLate || !needsLogin) return;
    // Browsers do not say why a socket was refused. If the login has ended, this leads to the login.
    const ask = () => void readPerson().catch(() => undefined);
    ask();
    const timer = setInterval(ask, ASK_MS);
    return () => clearInterval(timer);
  }, [isLate, needsLogin]);
  if (!isLost && isSilent) {
    return (
      <p className="notice" role="status">
        No sign of the server since <Moment at={live?.status().heardAt ?? 0} shown="time" />.
      </p>
    );
  }
  if (!isLost || !isLate) return null;
  return (
    <p className="notice" role="status">
      No connection since <Moment at={status.heardAt} shown="time" />. Trying again …
    </p>
  );
}
