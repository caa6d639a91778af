import type { MouseEvent, ReactNode } from 'react';
import type { Run, RunPart, RunStep } from '../../live/fold-run.ts';
import { spanText, visible } from '../../parts/text.ts';

interface PictureProps {
  readonly run: Run;
  readonly now: number;
  /** Where a step is shown. */
  readonly addressOf: (step: number) => string;
  readonly onStep: (step: number) => void;
}

const MAX_LABEL = 15;
const BOX = { width: 150, height: 54 };
const GAP = 84;
const LANE = { label: 140, track: 520, height: 38 };
const ROW = 68;

const short = (text: string) => {
  const shown = visible(text);
  return shown.length > MAX_LABEL ? `${shown.slice(0, MAX_LABEL - 1)}…` : shown;
};

/** `640 ms`, `2.4 s`, then as everywhere. */
export function durationText(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : spanText(ms);
}

export const stateText = (status: string) => status.replace('_', ' ');

/** The picture of a run: a chain, lanes on one axis of time, or columns with the speeches of a conversation. */
export function RunPicture(props: PictureProps) {
  const { mode } = props.run;
  return (
    <figure className="run-picture" aria-label={`Picture of the ${visible(mode)}`}>
      {mode === 'sequence' ? <Chain {...props} /> : null}
      {mode === 'parallel' || mode === 'race' ? <Lanes {...props} /> : null}
      {mode === 'conversation' ? <Columns {...props} /> : null}
    </figure>
  );
}

function Drawing(props: { readonly width: number; readonly height: number; readonly children: ReactNode }) {
  const { width, height, children } = props;
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
      <title>Steps of the run</title>
      {children}
    </svg>
  );
}

interface StepLinkProps extends PictureProps {
  readonly step: number;
  readonly label: string;
  readonly children: ReactNode;
}

function StepLink({ step, label, addressOf, onStep, children }: StepLinkProps) {
  function choose(event: MouseEvent): void {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    onStep(step);
  }
  return (
    <a href={addressOf(step)} aria-label={label} onClick={choose}>
      {children}
    </a>
  );
}

function timeOf(part: RunPart | undefined, now: number): string {
  return part === undefined ? '' : durationText((part.endedAt ?? Math.max(now, part.startedAt)) - part.startedAt);
}

interface BoxProps extends PictureProps {
  readonly x: number;
  readonly y: number;
  readonly step: RunStep;
  readonly part: RunPart | undefined;
}

function Box({ x, y, step, part, ...picture }: BoxProps) {
  const status = part?.status ?? 'waiting';
  const time = timeOf(part, picture.now);
  return (
    <StepLink
      {...picture}
      step={step.index}
      label={`Step ${step.index + 1}, ${visible(step.providerId)}: ${stateText(status)}`}
    >
      <rect className={`box ${status}`} x={x} y={y} width={BOX.width} height={BOX.height} rx={8} />
      <text className="name" x={x + 12} y={y + 22}>
        {step.index + 1} {short(step.providerId)}
      </text>
      <text className={`state ${status}`} x={x + 12} y={y + 41}>
        {[stateText(status), time].filter(Boolean).join(' · ')}
      </text>
    </StepLink>
  );
}

/** One after the other; an arrow has the name under which the output is handed on. */
function Chain(props: PictureProps) {
  const { steps, parts } = props.run;
  const middle = BOX.height / 2 + 18;
  return (
    <Drawing width={steps.length * (BOX.width + GAP) - GAP + 4} height={BOX.height + 36}>
      {steps.map((step, place) => {
        const x = 2 + place * (BOX.width + GAP);
        const end = x + BOX.width + GAP - 3;
        return (
          <g key={step.index}>
            <Box {...props} x={x} y={18} step={step} part={parts.find(({ index }) => index === step.index)} />
            {place === steps.length - 1 ? null : (
              <>
                <path className="arrow" d={`M${x + BOX.width + 3} ${middle} H${end} m-7 -5 l7 5 l-7 5`} />
                <text className="handed" x={x + BOX.width + GAP / 2} y={middle - 8} textAnchor="middle">
                  {step.outputAs === '' ? '' : `{{${short(step.outputAs).slice(0, 8)}}}`}
                </text>
              </>
            )}
          </g>
        );
      })}
    </Drawing>
  );
}

/** All at the same time. In a race the winner is solid, and the others end where they were stopped. */
function Lanes(props: PictureProps) {
  const { run, now } = props;
  const { steps, parts, startedAt, mode } = run;
  const last = Math.max(startedAt + 1, run.endedAt ?? now, ...parts.map(({ endedAt }) => endedAt ?? 0));
  const place = (at: number) => LANE.label + ((Math.max(at, startedAt) - startedAt) / (last - startedAt)) * LANE.track;
  return (
    <Drawing width={LANE.label + LANE.track + 90} height={steps.length * LANE.height + 8}>
      {steps.map((step, row) => {
        const part = parts.find(({ index }) => index === step.index);
        const status = part?.status ?? 'waiting';
        const y = row * LANE.height + 6;
        const from = place(part?.startedAt ?? startedAt);
        const to = Math.max(from + 4, place(part === undefined ? startedAt : (part.endedAt ?? now)));
        const isWinner = mode === 'race' && status === 'completed';
        return (
          <StepLink
            key={step.index}
            {...props}
            step={step.index}
            label={`Step ${step.index + 1}, ${visible(step.providerId)}: ${isWinner ? 'won' : stateText(status)}`}
          >
            <text className="name" x={4} y={y + 19}>
              {step.index + 1} {short(step.providerId)}
            </text>
            <rect className="track" x={LANE.label} y={y + 4} width={LANE.track} height={20} rx={4} />
            <rect
              className={`bar ${status} ${isWinner ? 'winner' : ''}`}
              x={from}
              y={y + 4}
              width={to - from}
              height={20}
              rx={4}
            />
            {status === 'cancelled' ? <path className="cut" d={`M${to} ${y} v28`} /> : null}
            <text className={`state ${status}`} x={LANE.label + LANE.track + 8} y={y + 19}>
              {isWinner ? 'won' : timeOf(part, now)}
            </text>
          </StepLink>
        );
      })}
    </Drawing>
  );
}

/** A column for each speaker, the speeches below each other in their order, and why it ended. */
function Columns(props: PictureProps) {
  const { steps, parts, stopReason } = props.run;
  const columnOf = (index: number) =>
    Math.max(
      0,
      steps.findIndex((step) => step.index === index),
    );
  const left = (index: number) => 2 + columnOf(index) * (BOX.width + GAP / 2);
  const bottom = parts.length * ROW;
  return (
    <Drawing width={steps.length * (BOX.width + GAP / 2) + 4} height={bottom + 34}>
      {parts.map((part, row) => {
        const before = parts[row - 1];
        const step = steps[columnOf(part.index)] ?? { ...part, prompt: '', outputAs: '' };
        const from = before === undefined ? undefined : left(before.index) + BOX.width / 2;
        const y = row * ROW + 2;
        return (
          <g key={`${part.index}-${part.conversationTurn ?? row}`}>
            {from === undefined ? null : (
              <path
                className="arrow"
                d={`M${from} ${y - ROW + BOX.height} L${left(part.index) + BOX.width / 2} ${y}`}
              />
            )}
            <Box {...props} x={left(part.index)} y={y} step={step} part={part} />
          </g>
        );
      })}
      <text className="handed" x={4} y={bottom + 18}>
        {stopReason === '' ? '' : `Ended: ${stateText(stopReason)}`}
      </text>
    </Drawing>
  );
}
