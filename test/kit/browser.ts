/** Follows redirects and keeps cookies, as a browser does; each host has its own. */
export interface Browser {
  /** Goes to an address, and on until `stop` says so or nothing sends it on; answers with where it ended. */
  open(url: string, stop?: (url: string) => boolean, headers?: Readonly<Record<string, string>>): Promise<string>;
  cookie(url: string, name: string): string | undefined;
  setCookie(url: string, name: string, value: string): void;
}

const MAX_REDIRECTS = 10;

export function createBrowser(): Browser {
  const jars = new Map<string, Map<string, string>>();
  const jarOf = (url: string) => {
    const { host } = new URL(url);
    const jar = jars.get(host) ?? new Map<string, string>();
    jars.set(host, jar);
    return jar;
  };
  const remember = (url: string, line: string) => {
    const [pair = '', ...flags] = line.split(';');
    const [name = '', ...value] = pair.split('=');
    const isGone = flags.some((flag) => flag.trim().toLowerCase() === 'max-age=0');
    if (isGone) jarOf(url).delete(name);
    else jarOf(url).set(name, value.join('='));
  };
  return {
    async open(start, stop = () => false, headers = {}) {
      let url = start;
      for (let count = 0; count < MAX_REDIRECTS && !stop(url); count += 1) {
        const cookie = [...jarOf(url)].map(([name, value]) => `${name}=${value}`).join('; ');
        const response = await fetch(url, {
          redirect: 'manual',
          headers: { ...(cookie !== '' && { cookie }), ...(count === 0 ? headers : {}) },
        });
        await response.arrayBuffer();
        for (const line of response.headers.getSetCookie()) remember(url, line);
        const location = response.headers.get('location');
        if (location === null) return url;
        url = new URL(location, url).href;
      }
      return url;
    },
    cookie: (url, name) => jarOf(url).get(name),
    setCookie: (url, name, value) => void jarOf(url).set(name, value),
  };
}
