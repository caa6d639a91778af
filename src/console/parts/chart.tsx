import { type KeyboardEvent, useId, useState } from 'react';
import { Link } from 'wouter';

export interface Series {
  readonly name: string;
  /** One for each place on the axis. */
  readonly values: readonly number[];
  /** Where the part of a bar leads, by its place on the axis. */
  readonly hrefOf?: (place: string) => string | undefined;
}

interface ChartProps {
  /** What the picture shows, for those who cannot see it. The figures themselves belong into a table. */
  readonly label: string;
  /** The names along the axis, such as days. */
  readonly axis: readonly string[];
  readonly series: readonly Series[];
  readonly valueText: (value: number) => string;
}

/** As many series as there are colours that can be told apart. */
export const MAX_SERIES = 7;
const WIDTH = 720;
const HEIGHT = 180;
const GAP = 0.2;

const STEPS: Readonly<Partial<Record<string, number>>> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Which of `count` links a key leads to from one. Undefined: the key does something else. */
function linkAfter(key: string, at: number, count: number): number | undefined {
  if (key === 'Home') return 0;
  if (key === 'End') return count - 1;
  const step = STEPS[key];
  return step === undefined ? undefined : Math.min(count - 1, Math.max(0, at + step));
}

/** Stacked bars, one for each place on the axis. Of those that lead somewhere, one is reached by Tab and the others by arrows. */
export function BarChart({ label, axis, series, valueText }: ChartProps) {
  const id = useId();
  const sums = axis.map((_, place) => series.reduce((sum, { values }) => sum + (values[place] ?? 0), 0));
  const highest = Math.max(...sums, 0);
  const step = WIDTH / Math.max(1, axis.length);
  const [current, setCurrent] = useState(0);
  const hrefs = axis.flatMap((name, place) =>
    series.flatMap(({ values, hrefOf }) => ((values[place] ?? 0) === 0 ? [] : (hrefOf?.(name) ?? []))),
  );
  function onKeyDown(event: KeyboardEvent<SVGSVGElement>): void {
    // With another key, it is one of the browser: Alt and ← goes back.
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const links = [...event.currentTarget.querySelectorAll<SVGAElement>('a')];
    const next = linkAfter(event.key, links.indexOf(event.target as SVGAElement), links.length);
    if (next === undefined) return;
    event.preventDefault();
    setCurrent(next);
    links[next]?.focus();
  }
  let link = -1;
  return (
    <figure className="chart">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role={hrefs.length === 0 ? 'img' : 'group'}
        aria-labelledby={id}
        onKeyDown={onKeyDown}
      >
        <title id={id}>{label}</title>
        {axis.map((name, place) => {
          let below = 0;
          return (
            <g key={name}>
              <title>{`${name}: ${valueText(sums[place] ?? 0)}`}</title>
              {/* The whole height says what a bar is, also where the bar is small. */}
              <rect className="back" x={place * step} y={0} width={step} height={HEIGHT} />
              {series.map(({ name: part, values, hrefOf }, index) => {
                const value = values[place] ?? 0;
                const height = highest === 0 ? 0 : (value / highest) * HEIGHT;
                below += height;
                if (value === 0) return null;
                const bar = (
                  <rect
                    key={part}
                    className={`series-${index + 1}`}
                    x={(place + GAP / 2) * step}
                    y={HEIGHT - below}
                    width={step * (1 - GAP)}
                    height={height}
                  />
                );
                const href = hrefOf?.(name);
                if (href === undefined) return bar;
                link += 1;
                const isReached = link === Math.min(current, hrefs.length - 1);
                return (
                  <Link
                    key={part}
                    href={href}
                    tabIndex={isReached ? 0 : -1}
                    aria-label={`${name}, ${part}: ${valueText(value)}. Show the calls`}
                  >
                    {bar}
                  </Link>
                );
              })}
            </g>
          );
        })}
      </svg>
      <div className="axis quiet" aria-hidden="true">
        <span>{axis[0]}</span>
        <span>highest {valueText(highest)}</span>
        <span>{axis.length > 1 ? axis.at(-1) : ''}</span>
      </div>
      {series.length < 2 ? null : (
        <figcaption>
          <ul className="legend">
            {series.map(({ name }, index) => (
              <li key={name}>
                <svg viewBox="0 0 10 10" aria-hidden="true">
                  <rect className={`series-${index + 1}`} width={10} height={10} />
                </svg>
                {name}
              </li>
            ))}
          </ul>
        </figcaption>
      )}
    </figure>
  );
}

/** One line over time, scaled to its own highest value. */
export function LineChart({ label, values }: { readonly label: string; readonly values: readonly number[] }) {
  const id = useId();
  const highest = Math.max(...values, 0);
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, place) => {
    const y = highest === 0 ? HEIGHT : HEIGHT - (value / highest) * HEIGHT;
    return `${(place * step).toFixed(1)},${y.toFixed(1)}`;
  });
  return (
    <svg
      className="line-chart"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-labelledby={id}
    >
      <title id={id}>{label}</title>
      <polyline points={points.join(' ')} vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
