import { AppError } from '../errors/app-error.ts';
import { probePaths } from './common-routes.ts';
import type { HostCheck } from './host-check.ts';
import type { RequestState } from './request-state.ts';

export interface AdmissionOptions {
  readonly headerCount: number;
  readonly checkHost: HostCheck;
  isDraining(): boolean;
}

/** What is asked of every request before it is even routed, WebSocket upgrades included. */
export type Admission = (state: RequestState) => AppError | undefined;

export function createAdmission({ headerCount, checkHost, isDraining }: AdmissionOptions): Admission {
  return (state) => {
    const { request } = state;
    if (request.rawHeaders.length > headerCount * 2) return new AppError('HEADERS_TOO_LARGE');
    const refusal = checkHost(request);
    if (refusal !== undefined) return refusal;
    // A whole URL as the target would bring a second host name past the check.
    if (request.url?.charCodeAt(0) !== 0x2f) {
      return new AppError('INVALID_REQUEST', { reason: 'its target must be a path' });
    }
    return isDraining() && !probePaths.has(state.path) ? new AppError('SHUTTING_DOWN') : undefined;
  };
}
