/** A still picture of a video, made in the browser: the gallery has no decoder of videos. */

const STILL_PX = 640;
const MS_MAX = 6_000;

/** One early picture of a video as JPEG; null if this browser cannot decode the video. */
export async function makeStill(file: Blob): Promise<Blob | null> {
  const video = document.createElement("video");
  const url = URL.createObjectURL(file);
  video.muted = true;
  video.playsInline = true;
  video.preload = "auto";
  try {
    video.src = url;
    await happened(video, "loadeddata");
    if (Number.isFinite(video.duration) && video.duration > 0.2) {
      video.currentTime = Math.min(1, video.duration / 4);
      await happened(video, "seeked");
    }
    return await drawStill(video);
  } catch {
    return null;
  } finally {
    video.removeAttribute("src");
    video.load();
    URL.revokeObjectURL(url);
  }
}

function drawStill(video: HTMLVideoElement): Promise<Blob | null> {
  const { videoWidth, videoHeight } = video;
  const scale = Math.min(1, STILL_PX / Math.max(videoWidth, videoHeight, 1));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(videoWidth * scale));
  canvas.height = Math.max(1, Math.round(videoHeight * scale));
  canvas.getContext("2d")!.drawImage(video, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.85));
}

/** Waits for an event of a video; fails with its error, or after a while. */
function happened(video: HTMLVideoElement, name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = window.setTimeout(() => reject(new Error("the video takes too long")), MS_MAX);
    const end = (settle: () => void) => () => (window.clearTimeout(timer), settle());
    video.addEventListener(name, end(resolve), { once: true });
    video.addEventListener("error", end(() => reject(video.error)), { once: true });
  });
}
