import type { TSchema } from 'typebox';
import type { Route, UpgradeRoute } from '../surface.ts';

export type DescribedRoute = Pick<Route, 'method' | 'path' | 'summary' | 'body' | 'schema' | 'unlisted'>;

export interface DescribedUpgrade extends Pick<UpgradeRoute, 'path' | 'summary'> {
  readonly query?: TSchema;
}

/** The part of an `HttpSurface` that the OpenAPI document tells of. */
export interface DescribedSurface {
  readonly name: string;
  readonly title: string;
  readonly routes: readonly DescribedRoute[];
  readonly upgrades: readonly DescribedUpgrade[];
  /** The shape of `errorBody`; with it, each operation has a `default` response. */
  readonly errorSchema?: TSchema;
}
