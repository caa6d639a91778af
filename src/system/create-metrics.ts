import type { Registry } from 'prom-client';
import {
  createHttpMetrics,
  type FigureSource,
  type HttpMetrics,
  type MetricsLibrary,
} from '../platform/http/http-metrics.ts';
import type { Stores } from './open-stores.ts';

const FIGURES = ['batches', 'commits', 'reads', 'queued'] as const;

/** The figures of `/metrics`: HTTP, the process, each database, and what services count by themselves. */
export function createMetrics(stores: Stores, sources: readonly FigureSource[]): HttpMetrics {
  return createHttpMetrics({
    sources,
    addFigures(registry, library) {
      library.collectDefaultMetrics({ register: registry });
      addDatabaseFigures(stores, registry, library);
    },
  });
}

function addDatabaseFigures({ databases }: Stores, registry: Registry, { Gauge }: MetricsLibrary): void {
  for (const figure of FIGURES) {
    new Gauge({
      name: `database_${figure}`,
      help: `Database ${figure}${figure === 'queued' ? ' now' : ' since the start'}.`,
      labelNames: ['database'],
      registers: [registry],
      collect() {
        for (const database of databases) this.set({ database: database.name }, database.statistics()[figure]);
      },
    });
  }
}
