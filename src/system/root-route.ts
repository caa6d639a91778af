import { anyone, type Call, type Route } from '../platform/http/surface.ts';

export interface RootRouteOptions {
  readonly version: string;
  /** Sends the API page. */
  readonly page: (call: Call) => unknown;
  /** `never`: the plain line for everybody; `browsers`: the page where HTML is asked for; `always`: the page. */
  readonly showPage: 'never' | 'browsers' | 'always';
}

/** `GET /`: what each service's document has there, and both where one listener carries several (design: Listeners). */
export function rootRoute({ version, page, showPage }: RootRouteOptions): Route {
  return {
    method: 'GET',
    path: '/',
    guard: anyone,
    summary: 'A line that says what runs here; the API page for browsers.',
    handle(call) {
      const asksForPage = call.head.headers.accept?.includes('text/html') === true;
      if (showPage !== 'never') call.reply.header('vary', 'Accept');
      if (showPage === 'always' || (showPage === 'browsers' && asksForPage)) return page(call);
      return call.reply.type('text/plain; charset=utf-8').send(`trestle ${version} is running\n`);
    },
  };
}
