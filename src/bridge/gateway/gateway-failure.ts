import { AppError } from '../../platform/errors/app-error.ts';
import { asObject } from '../agents/loose-json.ts';

/** Why a call to the gateway came to nothing: OFFLINE, RPC_TIMEOUT, SOCKET_CLOSED, OVERLOADED or the gateway's own code. */
export interface GatewayFailure {
  readonly code: string;
  readonly message: string;
  /** What is asked for is refused, and will be refused again: trying anew makes it worse. */
  readonly isRefusal: boolean;
}

const LONGEST_MESSAGE = 500;
/** First words of the codes with which a gateway says that it does not know us, or not well enough. */
const REFUSALS = ['AUTH_', 'DEVICE_', 'PAIRING_', 'CONTROL_UI_'];

export function gatewayFailed(code: string, message: string, isRefusal = false): AppError {
  return new AppError('GATEWAY_FAILED', {
    reason: message.slice(0, LONGEST_MESSAGE),
    gatewayCode: code,
    ...(isRefusal && { isRefusal }),
  });
}

/** From the `error` of an answer: the code in its details is the exact one. */
export function readGatewayError(value: unknown): AppError {
  const { code, message, details } = asObject(value);
  const own = typeof code === 'string' && code !== '' ? code : 'UNKNOWN';
  const detailed = asObject(details).code;
  const exact = typeof detailed === 'string' && detailed !== '' ? detailed : own;
  const isRefusal = own === 'NOT_PAIRED' || REFUSALS.some((word) => exact.startsWith(word));
  return gatewayFailed(exact, typeof message === 'string' && message !== '' ? message : exact, isRefusal);
}

/** What went wrong, for whoever tells it; a fault of ours is not explained. */
export function describeGatewayFailure(error: unknown): GatewayFailure {
  const details = error instanceof AppError && error.code === 'GATEWAY_FAILED' ? error.details : {};
  const { gatewayCode, reason, isRefusal } = details;
  return {
    code: typeof gatewayCode === 'string' ? gatewayCode : 'INTERNAL_ERROR',
    message: typeof reason === 'string' ? reason : 'The call could not be made.',
    isRefusal: isRefusal === true,
  };
}

export function isSocketLoss(error: unknown): boolean {
  const { code } = describeGatewayFailure(error);
  return code === 'SOCKET_CLOSED' || code === 'OFFLINE';
}
