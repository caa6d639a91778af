import { useId } from 'react';

interface Series {
  readonly name: string;
  /** One for each place on the axis. */
  readonly values: readonly number[];
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

/** Stacked bars, one for each place on the axis. */
export function BarChart({ label, axis, series, valueText }: ChartProps) {
  const id = useId();
  const sums = axis.map((_, place) => series.reduce((sum, { values }) => sum + (values[place] ?? 0), 0));
  const highest = Math.max(...sums, 0);
  const step = WIDTH / Math.max(1, axis.length);
  return (
    <figure className="chart">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-labelledby={id}>
        <title id={id}>{label}</title>
        {axis.map((name, place) => {
          let below = 0;
          return (
            <g key={name}>
              <title>{`${name}: ${valueText(sums[place] ?? 0)}`}</title>
              {/* The whole height says what a bar is, also where the bar is small. */}
              <rect className="back" x={place * step} y={0} width={step} height={HEIGHT} />
              {series.map(({ name: part, values }, index) => {
                const value = values[place] ?? 0;
                const height = highest === 0 ? 0 : (value / highest) * HEIGHT;
                below += height;
                return value === 0 ? null : (
                  <rect
                    key={part}
                    className={`series-${index + 1}`}
                    x={(place + GAP / 2) * step}
                    y={HEIGHT - below}
                    width={step * (1 - GAP)}
                    height={height}
                  />
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
