import { useEffect, useState } from 'react';
import { useLocation } from 'wouter';
import type { Live } from '../../client/trestle-client.ts';
import { sessionAddress } from '../data/bridge.ts';
import { visible } from '../parts/text.ts';

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
